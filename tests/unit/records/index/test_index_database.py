from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from epochal.records.index.index_database import (
    SCHEMA_VERSION,
    create_tables,
    holding_writer_lock,
    is_trusted,
    open_in_memory,
    open_reader,
    open_writer,
    put_aside,
    writing,
)

if TYPE_CHECKING:
    from pathlib import Path


def make(path: Path, *, is_shared: bool = False) -> None:
    with writing(path, is_shared=is_shared) as connection:
        create_tables(connection)
        connection.execute("INSERT INTO metrics (run_id, name, last) VALUES (1, 'val/loss', 0.5)")


def flip(path: Path) -> None:
    """Change a byte, and the time too: the clock of files is coarse."""
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(0, 0))


def test_a_file_is_trusted_until_something_else_changes_it(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    stamp, log = tmp_path / "index.db.stamp", tmp_path / "index.db-wal"

    def copy() -> None:
        shutil.copy2(path, tmp_path / "copy")
        (tmp_path / "copy").replace(path)

    for name, change in {
        "a byte": lambda: flip(path),
        "truncated": lambda: os.truncate(path, 4096),
        "empty": lambda: path.write_bytes(b""),
        "a copy": copy,
        "no stamp": stamp.unlink,
        "damaged stamp": lambda: stamp.write_bytes(b"\xff"),
        "stamp is a folder": lambda: (stamp.unlink(), stamp.mkdir()),
        "another version": lambda: stamp.write_text(
            stamp.read_text().replace(f"index {SCHEMA_VERSION}", "index 5")
        ),
        "a log": lambda: log.write_bytes(b"frames"),
        "a log elsewhere": lambda: (log.unlink(missing_ok=True), log.symlink_to(tmp_path / "mine")),
        "a folder": lambda: (path.unlink(), path.mkdir()),
        "a link": lambda: (path.rename(tmp_path / "real"), path.symlink_to(tmp_path / "real")),
        "a pipe": lambda: (path.unlink(), os.mkfifo(path)),
        "nothing": path.unlink,
    }.items():
        put_aside(path)
        make(path)
        assert is_trusted(path), name
        change()
        assert not is_trusted(path), name


def test_a_file_whose_log_was_only_read_is_trusted(tmp_path: Path) -> None:
    path, log = tmp_path / "index.db", tmp_path / "index.db-wal"
    make(path)
    with closing(open_reader(path)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT last FROM metrics").fetchall() == [(0.5,)]
        with writing(path, is_shared=False) as connection:
            connection.execute("INSERT INTO metrics (run_id, name) VALUES (2, 'val/loss')")
        assert log.stat().st_size, "the reader must keep the log from being moved into the file"
        os.chown(log, os.getuid(), os.getgid())  # SQLite does so when a superuser opens it
        with closing(open_reader(path)) as other:
            assert other.execute("SELECT count(*) FROM metrics").fetchall() == [(2,)]
        assert is_trusted(path)
        flip(log)
        assert not is_trusted(path)


def test_what_was_written_before_ctrl_c_is_trusted(tmp_path: Path) -> None:
    path = tmp_path / "index.db"

    def write_until(error: type[BaseException]) -> None:
        with writing(path, is_shared=False) as connection:
            connection.execute("INSERT INTO metrics (run_id, name) VALUES (2, 'a'), (3, 'b')")
            raise error

    for error, is_sound in ((KeyboardInterrupt, True), (sqlite3.DatabaseError, False)):
        put_aside(path)
        make(path)
        path.with_name("index.db.stamp").unlink()
        with pytest.raises(error):
            write_until(error)
        assert is_trusted(path) == is_sound, error


def test_a_file_that_is_put_aside_replaces_nothing_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    assert put_aside(path) is None
    for content, name in (
        ("first", "index.db.aside"),
        ("second", "index.db.aside"),
        (None, "index.db.aside-1"),
        (None, "index.db.aside-2"),
    ):
        path.mkdir() if content is None else path.write_text(content)
        (tmp_path / "index.db-wal").mkdir()
        aside = put_aside(path)
        assert aside is not None
        assert aside.name == name
        assert content is None or aside.read_text() == content
    assert len(list(tmp_path.glob("index.db-wal.aside-*"))) == 4


def test_a_shared_index_has_no_write_ahead_log(tmp_path: Path) -> None:
    for is_shared, mode in ((True, "delete"), (False, "wal")):
        path = tmp_path / f"{mode}.db"
        make(path, is_shared=not is_shared)
        with closing(open_writer(path, is_shared=is_shared)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == (mode,)


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    make(tmp_path / "index.db")
    with (
        closing(open_reader(tmp_path / "index.db")) as connection,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        connection.execute("DELETE FROM runs")


def test_an_index_in_memory_is_copied_from_a_usable_file(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    for text in (None, "", "no database at all " * 100):
        if text is not None:
            path.write_text(text)
        with closing(open_in_memory(path)) as connection:
            assert connection.execute("SELECT last FROM metrics").fetchall() == [], text
    put_aside(path)
    make(path)
    with closing(open_in_memory(path)) as connection:
        assert connection.execute("SELECT last FROM metrics").fetchall() == [(0.5,)]


def test_there_is_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    with holding_writer_lock(path) as is_mine:
        assert is_mine
        with holding_writer_lock(path) as is_mine_too:
            assert not is_mine_too
    with holding_writer_lock(path) as is_mine:
        assert is_mine


def test_the_lock_of_a_killed_writer_is_released(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom pathlib import Path\n"
        "from epochal.records.index.index_database import holding_writer_lock\n"
        "with holding_writer_lock(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    )
    path = tmp_path / "index.db"
    assert subprocess.run([sys.executable, "-c", script, str(path)], check=False).returncode == -9
    with holding_writer_lock(path) as is_mine:
        assert is_mine
