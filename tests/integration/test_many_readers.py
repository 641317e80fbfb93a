"""Many processes write runs while others refresh and query the index."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from epochal.records.folder import machine
from epochal.records.index import Index
from epochal.records.index.index import find_index_errors
from forked import Child

if TYPE_CHECKING:
    from pathlib import Path

WRITERS, READERS, RUNS = 16, 4, 3

START = """
import sys
from pathlib import Path
from epochal.records.folder import machine
root, name = Path(sys.argv[1]), sys.argv[2]
machine.MOUNTS = root.parent / "mounts"
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


@pytest.mark.parametrize("kind", ["ext4", "nfs4"])
def test_sixteen_writers_and_four_readers_never_wait_for_a_lock(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mounts").write_text(f"x / {kind} rw 0 0\n")
    monkeypatch.setattr(machine, "MOUNTS", tmp_path / "mounts")
    root = tmp_path / "runs"
    root.mkdir()
    readers = [Child("-c", READ, str(root), f"reader {i}") for i in range(READERS)]
    writers = [Child("-c", WRITE, str(root), f"writer {i}") for i in range(WRITERS)]
    try:
        written = [writer.end() for writer in writers]
        (tmp_path / "over").touch()
        read = [reader.end() for reader in readers]
    finally:
        for process in (*readers, *writers):
            if process.code is None:
                process.signal(signal.SIGKILL)
    for done in written:
        assert (done.stdout + done.stderr, done.returncode) == ("", 0)
    for done in read:
        assert done.returncode == 0, done.stderr
        looks, _, seen = done.stdout.strip().partition(" ")
        assert int(looks) >= 1
        assert int(seen) == WRITERS * RUNS
    with Index.open(root) as index:
        assert index.refresh().total == WRITERS * RUNS
        assert index.fetch("SELECT count(*) FROM runs WHERE status = 'finished'") == [(48,)]
        assert list(find_index_errors(index, lambda _: None)) == []
