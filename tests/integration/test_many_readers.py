"""Many processes write runs while others bring the index up to date and ask it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from epochal.records.index import Index
from epochal.records.index.verify import find_index_errors
from epochal.records.machine import mounts

if TYPE_CHECKING:
    from pathlib import Path

WRITERS, READERS, RUNS = 16, 4, 3

START = """
import sys
from pathlib import Path
from epochal.records.machine import mounts
root, name = Path(sys.argv[1]), sys.argv[2]
mounts.MOUNTS = root.parent / "mounts"
"""

WRITE = f"""{START}
from epochal.records import RecordOptions, RunWriter, create_run_folder
for number in range({RUNS}):
    folder = create_run_folder(RecordOptions(log_dir=root), project="p", tag=name)
    writer = RunWriter(folder)
    writer.write_status("running")
    writer.write_readme(name, f"number {{number}}")
    origin = {{"value": number, "layer": "file"}}
    writer.write_config([], "", "yaml", {{"seed": [origin]}})
    writer.write_run({{"project": "p", "tag": name, "seed": number}})
    for step in range(20):
        writer.log({{"loss": 1 / (1 + step)}}, step)
    writer.write_result({{"metrics": {{"loss": 0.05}}}})
    writer.write_status("finished", step=20)
    writer.close()
"""

READ = f"""{START}
from epochal.records.index import Index
looks, is_over = 0, False
while not is_over:
    is_over = (root.parent / "over").exists()
    with Index.open(root) as index:
        is_over &= index.refresh().is_current
        assert not index.notes, index.notes
        sql = "SELECT tag, last FROM runs LEFT JOIN metrics ON run_id = id ORDER BY tag, run"
        rows = index.fetch(sql)
        assert all(last is None or 0.05 <= last <= 1 for _, last in rows), rows
        index.search("number")
    looks += 1
print(looks, len(rows))
"""


def start(script: str, root: Path, name: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", script, str(root), name]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdout=pipe, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize("kind", ["ext4", "nfs4"])
def test_sixteen_writers_and_four_readers_never_meet_a_lock(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mounts").write_text(f"x / {kind} rw 0 0\n")
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "mounts")
    root = tmp_path / "runs"
    root.mkdir()
    readers = [start(READ, root, f"reader {i}") for i in range(READERS)]
    writers = [start(WRITE, root, f"writer {i}") for i in range(WRITERS)]
    try:
        for writer in writers:
            assert (writer.communicate()[0], writer.returncode) == ("", 0)
        (tmp_path / "over").touch()
        for reader in readers:
            text = reader.communicate()[0]
            assert reader.returncode == 0, text
            looks, _, seen = text.strip().partition(" ")
            assert int(looks) >= 1
            assert int(seen) == WRITERS * RUNS
    finally:
        for process in (*readers, *writers):
            process.kill()
            process.wait()
    with Index.open(root) as index:
        assert index.refresh().total == WRITERS * RUNS
        assert index.fetch("SELECT count(*) FROM runs WHERE status = 'finished'") == [(48,)]
        assert list(find_index_errors(index, lambda _: None)) == []
