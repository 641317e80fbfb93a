"""The benchmark of logging runs and leaves no files; its figures are not tested."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

import forked

FOLDER = Path(__file__).parents[2] / "benchmarks"
SMALL = ("--rounds", "1", "--calls", "50", "--kill", "10")


@pytest.mark.long
def test_benchmark_prints_a_table_and_leaves_no_files(tmp_path: Path) -> None:
    words = (*SMALL, "--only", "Epochal", "--dir", str(tmp_path))
    done = forked.run(str(FOLDER / "log_cost.py"), *words)
    assert done.returncode == 0, done.stderr
    for word in ("us/call", "bytes/point", "run.log of ten numbers:", "points lost: 0"):
        assert word in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_benchmarks_do_not_shadow_imported_modules() -> None:
    names = {path.stem for path in FOLDER.glob("*.py")}
    assert not names & sys.stdlib_module_names


def test_records_of_wandb_are_joined_from_their_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from loggers import read_wandb

    def part(kind: int, data: bytes) -> bytes:
        return struct.pack("<IHB", 0, len(data), kind) + data

    whole = b":W&B\0\0\0" + part(1, b"one")
    room = 32_768 - len(whole) - 7
    split = whole + part(2, b"x" * room) + part(4, b"yz") + part(1, b"torn")
    assert list(read_wandb(split[:-1])) == [b"one", b"x" * room + b"yz"]
    assert list(read_wandb(whole + part(1, b"z" * (room - 3)) + bytes(3) + part(1, b"next"))) == [
        b"one",
        b"z" * (room - 3),
        b"next",
    ]
