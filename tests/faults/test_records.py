"""Power cuts while records are written: files are old or new, acknowledged lines survive."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

from power import Dice, Disk, Recorder, materialise

from epochal import durable
from epochal.durable import system

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest
    from power import Entry

COUNT = 20


def states(log: list[Entry], folder: Path) -> Iterator[tuple[Path, int]]:
    """Folders after power cuts, five after each operation; and how many were acknowledged."""
    for cut in range(len(log) + 1):
        acknowledged = sum(name == "saved" for name, _ in log[:cut])
        for seed in range(5):
            materialise(Disk(log[:cut]).state(Dice(random.Random(seed))), folder)
            yield folder, acknowledged
            shutil.rmtree(folder)


def record(root: Path, patch: pytest.MonkeyPatch, act: Callable[[Path, int], None]) -> list[Entry]:
    root.mkdir()
    recorder = Recorder(root)
    with patch.context() as inner:
        inner.setattr(system, "operations", recorder.operations)
        for number in range(COUNT):
            act(root, number)
            recorder.mark("saved", f"{number}")
    return recorder.log


def content(number: int) -> bytes:
    return f"{number}".encode() * 1000


def test_replaced_file_is_old_or_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = record(
        tmp_path / "real",
        monkeypatch,
        lambda root, number: durable.write_bytes(root / "status.json", content(number)),
    )
    for folder, acknowledged in states(log, tmp_path / "state"):
        path = folder / "status.json"
        found = path.read_bytes() if path.exists() else None
        assert found in {
            content(acknowledged),
            content(acknowledged - 1) if acknowledged else None,
        }


def test_acknowledged_lines_survive_and_the_file_can_be_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = record(
        tmp_path / "real",
        monkeypatch,
        lambda root, number: durable.append_line(root / "lines", {"n": number, "x": "y" * 700}),
    )
    for folder, acknowledged in states(log, tmp_path / "state"):
        durable.append_line(folder / "lines", {"n": "new"})
        lines = [durable.decode_line(line) for line in (folder / "lines").read_bytes().splitlines()]
        numbers = [line["n"] for line in lines if line is not None]
        assert numbers[:acknowledged] == list(range(acknowledged))
        assert numbers[-1] == "new"
        assert numbers[acknowledged:-1] in ([], [acknowledged])
