"""Two hundred damaged checkpoints: each one is noticed, named and skipped."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING

import pytest
from scene import commit

from epochal.checkpoint import mark_as_damaged, read_checkpoint
from epochal.errors import CheckpointError
from epochal.records.folder.checkpoint_manifests import (
    find_best_checkpoint,
    find_newest_checkpoint,
    verify_checkpoint,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COUNT = 200
STEPS = (2, 3, 5, 6)
FILES = ("manifest.json", "state.json", "tensors.safetensors")
FOREIGN = {
    "a pickle": b"\x80\x04\x95\x10\x00\x00\x00",
    "an archive": b"PK\x03\x04" + bytes(26),
    "a picture": b"\x89PNG\r\n\x1a\n",
    "a text": b"this was not here before\n",
    "an empty mapping": b"{}",
}


def cut_short(path: Path, dice: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: dice.randrange(len(data))])


def flip_a_bit(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)


def lose(path: Path, _: random.Random) -> None:
    path.unlink()


def empty(path: Path, _: random.Random) -> None:
    path.write_bytes(b"")


def zero(path: Path, _: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def lengthen(path: Path, dice: random.Random) -> None:
    path.write_bytes(path.read_bytes() + dice.randbytes(dice.randint(1, 5000)))


def zero_a_block(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    start = dice.randrange(max(1, len(data) - 64))
    data[start : start + 64] = bytes(len(data[start : start + 64]))
    path.write_bytes(data)


def replace_by_something_foreign(path: Path, dice: random.Random) -> None:
    path.write_bytes(dice.choice(list(FOREIGN.values())))


def replace_by_a_folder(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


def swap_with_another_step(path: Path, dice: random.Random) -> None:
    steps = [step for step in STEPS if f"step-{step}" != path.parent.name]
    other = path.parent.with_name(f"step-{dice.choice(steps)}") / path.name
    here = path.read_bytes()
    path.write_bytes(other.read_bytes())
    assert path.read_bytes() != here


def edit_the_manifest(path: Path, dice: random.Random) -> None:
    text = json.loads(path.read_bytes())
    key = dice.choice(["step", "attempt", "epoch", "files", "metrics", "format", "digest", "run"])
    if dice.random() < 0.5:
        del text[key]
    else:
        text[key] = dice.choice([7, "x", None, [], {"state.json": {"size": 1, "sha256": "0"}}])
    path.write_text(json.dumps(text))


WAYS = (
    cut_short,
    flip_a_bit,
    lose,
    empty,
    zero,
    lengthen,
    zero_a_block,
    replace_by_something_foreign,
    replace_by_a_folder,
    swap_with_another_step,
    edit_the_manifest,
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "checkpoints"
    for step in STEPS:
        commit(folder, step)
    return folder


def damage(folder: Path, seed: int) -> tuple[str, str, str]:
    """Damage the newest checkpoint at random; gives the way, the file and the checkpoint."""
    dice = random.Random(seed)
    way = WAYS[seed % len(WAYS)]
    files = FILES[:1] if way is edit_the_manifest else FILES
    file = files[seed // len(WAYS) % len(files)]
    way(folder / f"step-{STEPS[-1]}" / file, dice)
    return way.__name__, file, f"step-{STEPS[-1]}"


def test_every_damage_is_noticed_and_the_newest_good_checkpoint_is_used(
    template: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    seen: set[tuple[str, str]] = set()
    for seed in range(COUNT):
        folder = tmp_path / "checkpoints"
        shutil.copytree(template, folder)
        way, file, name = damage(folder, seed)
        seen.add((way, file))
        wrong = verify_checkpoint(folder / name)
        assert wrong is not None, f"seed {seed}: {way} of {file} went unnoticed"
        assert str(folder / name / wrong.file) in str(wrong)
        # A valid manifest of another step is noticed only because the files do not match.
        is_other = (way, file) == ("swap_with_another_step", "manifest.json")
        assert (wrong.file == file) != is_other
        with pytest.raises(CheckpointError, match=f"{wrong.file}: damaged: "):
            read_checkpoint(folder / name)
        newest, damages = find_newest_checkpoint(folder)
        assert newest is not None
        assert newest.step == STEPS[-2]
        assert damages == [wrong] or is_other
        best, _ = find_best_checkpoint(
            folder
        )  # the damaged one was the best, step 2 is the next best
        assert best is not None
        assert best.step == 2
        mark_as_damaged(folder / name)
        assert find_newest_checkpoint(folder) == (
            newest,
            [],
        )  # damaged checkpoints are not read again
        assert read_checkpoint(newest.path)[1] == newest
        shutil.rmtree(folder)
    assert len(seen) == 3 * (len(WAYS) - 1) + 1
    record_property("counted", f"damaged checkpoints: {COUNT}, {len(seen)} ways, all noticed")


def test_any_number_of_damaged_checkpoints_is_skipped(template: Path, tmp_path: Path) -> None:
    for broken in range(len(STEPS) + 1):
        folder = tmp_path / f"{broken}"
        shutil.copytree(template, folder)
        for step in STEPS[len(STEPS) - broken :]:
            flip_a_bit(folder / f"step-{step}" / "tensors.safetensors", random.Random(step))
        newest, damages = find_newest_checkpoint(folder)
        assert len(damages) == broken
        assert (newest.step if newest else None) == (
            STEPS[-1 - broken] if broken < len(STEPS) else None
        )


def test_unrelated_files_do_not_damage_a_checkpoint(template: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    shutil.copytree(template, folder)
    (folder / "step-6" / "notes.txt").write_text("the good one")
    (folder / "step-6" / ".DS_Store").touch()
    assert verify_checkpoint(folder / "step-6") is None
