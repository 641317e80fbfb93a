"""Tests of ``epochal test``."""

from __future__ import annotations

import json
from pathlib import Path

from epochal.records import read_run
from small_project import Command, run_folders, tree


def test_weights_of_the_last_run_are_evaluated(shop: Path, epochal: Command) -> None:
    assert epochal("run", "config.yaml").code == 0
    (trained,) = run_folders(shop)
    done = epochal("test", "last")
    assert done.code == 0, done.err
    assert "results  test/acc " in done.out
    evaluated = json.loads((run_folders(shop)[-1] / "run.json").read_text())
    assert evaluated["runner"] == "test"
    assert Path(evaluated["init_from"]).parent == trained.relative_to(shop) / "checkpoints"


def test_best_weights_are_used_and_named(shop: Path, epochal: Command) -> None:
    assert epochal("run", "config.yaml", "train.for=4ep").code == 0
    (trained,) = run_folders(shop)
    best = read_run(trained).best("val/acc", "max")
    first = epochal("test", "last", "--no-file").out
    where = f"of {trained.name}"
    measured = f"(step {best.step}, val/acc {best.value:.4g})"
    assert f"  weights  best {measured} {where}\n" in first
    table = {
        "best": f"best {measured}",
        "last": "last (step 24, val/acc",
        "final": f"final {where}",
        "24": "shop-24 (step 24, val/acc",
        "shop-24": "shop-24 (step 24, val/acc",
        str(trained / "checkpoints" / "final.safetensors"): "final.safetensors of",
    }
    for name, shown in table.items():
        done = epochal("test", "last", "--no-file", "--from", name)
        assert done.code == 0, done.err
        assert shown in done.out.partition("  weights  ")[2], name
    done = epochal("predict", "last", "--from", "best", "--no-file", "--output", "out.jsonl")
    assert f"  weights  best {measured} {where}\n" in done.out


def test_weights_that_a_run_has_not_are_refused(shop: Path, epochal: Command) -> None:
    changes = ("checkpoint.keep_best=0", "checkpoint.every=0", "train.for=1ep")
    assert epochal("run", "config.yaml", *changes).code == 0
    assert "  weights  final of " in epochal("test", "last", "--no-file").out
    for name, message in {
        "best": "has no best weights: no checkpoint with its monitor was kept",
        "5": "has no weights '5'\n  name best, last, final, a file, or a step that was kept: 6",
        "finall": "has no weights 'finall'\n  did you mean 'final'?",
    }.items():
        done = epochal("test", "last", "--from", name)
        assert (done.code, message in done.err) == (74, True), done.err
    (weights,) = shop.rglob("checkpoints/final.safetensors")
    weights.unlink()
    assert "which are saved when a training ends" in epochal("test", "last", "--from=final").err
    assert "  weights  last (step 6, " in epochal("test", "last", "--no-file").out


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
    assert "has no weights; it is 'failed'" in done.err
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
    done = epochal("test", "last", "--from", "final")
    assert done.code == 74
    assert "final.safetensors" in done.err
    assert "Traceback" not in done.err
