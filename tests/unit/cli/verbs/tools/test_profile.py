"""Tests of ``epochal profile``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from small_project import Command, run_folders

if TYPE_CHECKING:
    from pathlib import Path

SHORT = ("--wait", "1", "--warmup", "1", "--steps", "3", "--device", "cpu")


def test_profile_prints_operators_layers_and_advice_and_writes_a_trace(
    shop: Path, epochal: Command
) -> None:
    done = epochal("profile", "config.yaml", "optim.lr=0.1", *SHORT)
    assert done.code == 0, done.err
    for text in (
        "shop on cpu: 3 steps profiled",
        "  time     ",
        "  shares   data wait ",
        "  advice   ",
        "  folder   profile-shop",
        "ui.perfetto.dev",
        "  operator",
        "aten::addmm",
        "  more     table.txt has all operators, model.txt all layers",
        "  model       Net",
        "  FLOPs       ",
        "a sample, forward",
        "  latency     ",
        "  layer ",
    ):
        assert text in done.out
    assert (shop / "profile-shop" / "trace.json.gz").exists()
    assert run_folders(shop) == []


def test_profile_as_json(shop: Path, epochal: Command) -> None:
    done = epochal("profile", "config.yaml", *SHORT, "--json", "--out", "there", "--shapes")
    values = json.loads(done.out)
    assert (values["steps"], values["dir"], values["reason"]) == (3, "there", "profiled")
    assert values["model"]["kind"] == "Net"


def test_a_folder_that_exists_is_not_overwritten(shop: Path, epochal: Command) -> None:
    (shop / "there").mkdir()
    done = epochal("profile", "config.yaml", *SHORT, "--out", "there")
    assert done.code != 0
    assert "there: exists already, and is not overwritten" in done.err
    assert "--out" in done.err


def test_zero_steps_are_refused(shop: Path, epochal: Command) -> None:
    done = epochal("profile", "config.yaml", "--steps", "0")
    assert "command line: --steps must be at least 1, got 0\n  write --steps 1" in done.err


def test_failed_run_is_reported(shop: Path, epochal: Command) -> None:
    done = epochal("profile", "config.yaml", "task.type=shop.parts.FloatLoss", *SHORT)
    assert done.code != 0
    assert "batch_loss" in done.err
    assert done.out == ""


def test_training_that_is_too_short_is_an_error(shop: Path, epochal: Command) -> None:
    done = epochal("profile", "config.yaml", "train.for=2st", *SHORT)
    assert done.code != 0
    assert (
        "nothing was recorded: the training ends after 2 steps, and at least 3 are needed\n"
        "  write train.for=3st, or choose smaller numbers for --wait and --warmup"
    ) in done.err


def test_help_offers_one_variant_only(epochal: Command) -> None:
    assert "`all`" not in epochal("profile", "--help").out
    assert "`all`" in epochal("plan", "--help").out
