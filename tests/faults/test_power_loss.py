"""Power cuts on a simulated disk lose nothing that was acknowledged."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest
from power import Dice, Disk, Recorder, materialise
from scene import check_links, clean, commit, visible

from epochal import durable
from epochal.checkpoint import prune_checkpoints
from epochal.durable import system
from epochal.records.folder.checkpoint_manifests import find_checkpoints, find_newest_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from power import Entry

STEPS = range(1, 7)


def record(root: Path, monkeypatch: pytest.MonkeyPatch, **options: tuple[str, ...]) -> list[Entry]:
    """The recorded operations of several saves with rotation and links."""
    recorder = Recorder(root, **options)
    root.mkdir()
    folder = root / "checkpoints"
    with monkeypatch.context() as patch:
        patch.setattr(system, "operations", recorder.operations)
        patch.setattr(durable.atomic_files, "_CHUNK_BYTES", 6000)
        for step in STEPS:
            recorder.mark("saved", commit(folder, step).name)
            before = {one.name for one in find_checkpoints(folder)}
            prune_checkpoints(folder, keep_last=2, keep_best=1)
            assert before >= {one.name for one in find_checkpoints(folder)}
    return recorder.log


def promised(log: list[Entry]) -> set[str]:
    """The checkpoints that must exist: acknowledged and not being removed."""
    names: set[str] = set()
    for what, args in log:
        if what == "saved":
            names.add(args[0])
        if what == "replace":
            names.discard(args[0][-1])
    return names


def number(name: str) -> int:
    return int(name.removeprefix("step-"))


def check(root: Path, log: list[Entry]) -> None:
    """Check after a power cut that no acknowledged checkpoint is missing or incomplete."""
    folder = root / "checkpoints"
    wanted = promised(log)
    found = visible(folder)
    assert found >= wanted
    newest, damage = find_newest_checkpoint(folder)
    assert damage == []
    assert not wanted or (newest and newest.step >= max(map(number, wanted)))
    check_links(folder)
    clean(folder)
    assert visible(folder) == found


def cuts(log: list[Entry], dice: random.Random) -> Iterator[int]:
    """After which operations to cut the power: each once, then where most changes were pending."""
    yield from range(len(log) + 1)
    weights = [1 + Disk(log[:cut]).pending for cut in range(len(log) + 1)]
    while True:
        yield dice.choices(range(len(log) + 1), weights)[0]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", [300, pytest.param(6000, marks=pytest.mark.torture)])
def test_acknowledged_checkpoints_survive_power_cuts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
    count: int,
) -> None:
    log = record(tmp_path / "real", monkeypatch)
    seen: set[object] = set()
    for trial, cut in enumerate(cuts(log, random.Random(0))):
        state = Disk(log[:cut]).state(Dice(random.Random(trial)))
        if (state, cut) not in seen:
            seen.add((state, cut))
            materialise(state, tmp_path / "state")
            try:
                check(tmp_path / "state", log[:cut])
            except AssertionError as error:
                raise AssertionError(f"trial {trial}: cut after {cut}: {log[cut - 1]}") from error
            shutil.rmtree(tmp_path / "state")
        if len(seen) == count:
            break
    record_property("counted", f"power cuts in {len(log)} operations: {count} different states")


def test_simulated_disk_without_power_cut_equals_the_real_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = record(tmp_path / "real", monkeypatch)
    materialise(Disk(log).state(Dice(random.Random(0))), tmp_path / "model")
    assert contents(tmp_path / "model") == contents(tmp_path / "real")


def contents(root: Path) -> dict[str, object]:
    return {
        str(path.relative_to(root)): path.readlink() if path.is_symlink() else path.read_bytes()
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize("forgotten", ["file", "dir"])
def test_simulated_disk_notices_a_missing_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: str
) -> None:
    log = record(tmp_path / "real", monkeypatch, forgets=(forgotten,))
    failures = 0
    for seed in range(100):
        dice = random.Random(seed)
        cut = dice.randint(0, len(log))
        materialise(Disk(log[:cut]).state(Dice(dice)), tmp_path / f"{seed}")
        try:
            check(tmp_path / f"{seed}", log[:cut])
        except AssertionError:
            failures += 1
    assert failures > 10
