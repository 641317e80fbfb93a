"""Tests of ``epochal test``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from small_project import Command, run_folders, tree

if TYPE_CHECKING:
    from pathlib import Path


def test_weights_of_the_last_run_are_evaluated(shop: Path, epochal: Command) -> None:
    assert epochal("run", "config.yaml").code == 0
    done = epochal("test", "last")
    assert done.code == 0, done.err
    assert "results  test/acc " in done.out
    evaluated = json.loads((run_folders(shop)[-1] / "run.json").read_text())
    assert evaluated["runner"] == "test"
    assert evaluated["init_from"].endswith("final.safetensors")


def test_test_after_a_test_still_finds_the_weights(shop: Path, epochal: Command) -> None:
    assert epochal("run", "config.yaml").code == 0
    assert [epochal("test", "last").code for _ in range(2)] == [0, 0]


def test_config_can_be_overridden_without_a_record(shop: Path, epochal: Command) -> None:
    assert epochal("run", "config.yaml", "--fast").code == 0
    before = tree(shop)
    done = epochal("test", "last", "task.num_samples=8", "--no-file", "--device", "cpu")
    assert done.code == 0, done.err
    assert tree(shop) == before


def test_run_without_weights_has_a_hint(shop: Path, epochal: Command) -> None:
    assert epochal("run", "config.yaml", "task.type=shop.parts.FloatLoss").code == 70
    done = epochal("test", run_folders(shop)[0].name)
    assert done.code == 74
    assert "has no weights to test, it is 'failed'" in done.err
    assert "`epochal runs`" in done.err


def test_unknown_run_and_empty_folder_have_a_hint(shop: Path, epochal: Command) -> None:
    done = epochal("test", "last")
    assert done.code == 74
    assert "epochal run CONFIG" in done.err
    epochal("run", "config.yaml", "--fast")
    done = epochal("test", "abcdefgh")
    assert done.code == 74
    assert "abcdefgh: no such run in runs" in done.err


def test_ambiguous_name_lists_the_candidates(shop: Path, epochal: Command) -> None:
    for _ in range(2):
        epochal("run", "config.yaml", "--fast")
    done = epochal("test", "2")
    assert done.code == 74
    assert all(str(folder.relative_to(shop)) in done.err for folder in run_folders(shop))


def test_truncated_weights_are_an_error(shop: Path, epochal: Command) -> None:
    epochal("run", "config.yaml", "--fast")
    (weights,) = shop.rglob("final.safetensors")
    weights.write_bytes(weights.read_bytes()[:-3])
    done = epochal("test", "last")
    assert done.code == 74
    assert "final.safetensors" in done.err
    assert "Traceback" not in done.err
