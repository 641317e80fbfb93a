"""The program of the tests of full disks: saves until there is no room.

usage: full_disk.py limit FOLDER SIZE...   files may not grow beyond each of the sizes
       full_disk.py tmpfs FOLDER SIZE      a file system of that size is mounted there first
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from scene import clean, commit, newest, save, visible

from epochal.checkpoint import prune_checkpoints
from epochal.errors import CheckpointError


def limit_sizes(folder: Path, sizes: list[int]) -> str:
    """Save under a limit of the file size, which acts like a full disk."""
    messages: list[str] = []
    for size in sizes:
        shutil.rmtree(folder, ignore_errors=True)
        save(folder, 1)
        save(folder, 2)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            save(folder, 3)
        except CheckpointError as error:
            messages.append(str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        has_failed = size < 17_000
        assert newest(folder) == (2 if has_failed else 3), size
        assert visible(folder) == ({"step-1", "step-2"} if has_failed else {"step-2", "step-3"})
        assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
        save(folder, 4)
        clean(folder)
        assert newest(folder) == 4
    assert all("cannot be written: file too large" in text for text in messages), messages
    return f"file-size limits: {len(sizes)}, {len(messages)} saves failed, 0 checkpoints lost"


def fill_tmpfs(folder: Path, size: str) -> str:
    """Fill a real file system, remove a file, and save again."""
    folder.mkdir(exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        check=True,
        capture_output=True,
    )
    target = folder / "checkpoints"
    saved: list[str] = []
    messages: list[str] = []
    while len(messages) < 3:
        try:
            saved.append(commit(target, len(saved) % 8 + 1).name)
        except CheckpointError as error:
            messages.append(str(error))
        assert visible(target) == set(saved)
        assert [path.name for path in target.iterdir() if path.name.startswith(".")] == []
    removed = prune_checkpoints(target, keep_last=2, keep_best=1)
    left = set(saved) - set(removed)
    assert visible(target) == left
    left.add(commit(target, 8).name)
    assert visible(target) == left
    assert all("no space left on device\n  free some" in text for text in messages), messages
    return f"full file system of {size}: {len(saved)} saved, 3 failed, 0 checkpoints lost"


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if sys.argv[1] == "limit":
        line = limit_sizes(Path(sys.argv[2]), [int(size) for size in sys.argv[3:]])
    else:
        line = fill_tmpfs(Path(sys.argv[2]), sys.argv[3])
    sys.stdout.write(line + "\n")
