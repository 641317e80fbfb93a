"""Tests of ``epochal plan``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from small_project import Command, tree

if TYPE_CHECKING:
    from pathlib import Path


def test_plan_shows_the_run_and_writes_nothing(shop: Path, epochal: Command) -> None:
    before = tree(shop)
    done = epochal("plan", "config.yaml", "--device", "cpu")
    assert done.code == 0, done.err
    for text in (
        "  runner   Train on cpu",
        "  length   2 epochs, 12 steps",
        "  model    Net, 15 parameters",
        "  optim    SGD (fused)",
        "  evaluate val every 1ep\n",
        "  save     every 1ep and at the end\n",
        "values filled in by default",
        "model.dropout",
    ):
        assert text in done.out
    assert tree(shop) == before


def test_plan_shows_the_periods_of_a_run_that_ends_inside_an_epoch(
    shop: Path, epochal: Command
) -> None:
    for length, period in (("for=40st", "2st"), ("for=2h", "1ep or 6min")):
        done = epochal("plan", "config.yaml", f"train.{length}", "--device", "cpu")
        assert f"  evaluate val every {period} and at the end\n" in done.out, length
        assert f"  save     every {period} and at the end\n" in done.out, length
        assert "train.eval_every          'auto'" in done.out


def test_plan_notes_options_that_slow_down_steps(shop: Path, epochal: Command) -> None:
    words = ("plan", "config.yaml", "engine.on_nonfinite=skip", "--device", "cpu")
    assert "  note " not in epochal(*words).out
    text = (
        "  note     engine.on_nonfinite=skip costs one host read per step with SGD; "
        "a fused optimizer would not\n"
    )
    assert text in epochal(*words, "optim.fused=false").out


def test_plan_shows_the_gradient_guard(shop: Path, epochal: Command) -> None:
    done = epochal("plan", "config.yaml", "engine.on_nonfinite=stop", "--device", "cpu")
    assert "watch gradients" in done.out


def test_plan_as_json(shop: Path, epochal: Command) -> None:
    plans = json.loads(epochal("plan", "config.yaml", "--variant", "all", "--json").out)
    assert [plan["title"] for plan in plans] == ["shop (variant hot)", "shop (variant long)"]
    assert plans[0]["rows"][0]["event"]


def test_plan_plots_the_learning_rate(
    shop: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    schedule = "schedule={type: linear, warmup: 3st, min_factor: 0.5}"
    done = epochal("plan", "config.yaml", schedule, "--plot", "--device", "cpu")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "shop: learning rate"
    assert lines[-1].strip() == "step, ┴ evaluation"
    assert "events, in this order" not in done.out
    assert "\x1b" not in done.out
    assert max(map(len, lines)) <= 80


def test_plan_plots_stages_and_groups(shop: Path, epochal: Command) -> None:
    done = epochal(
        *("plan", "config.yaml", "--plot", "--device", "cpu"),
        "optim.groups=[{match: '*.bias', lr_mult: 0.5, name: bias}]",
        "stages=[{name: one, for: 1ep}, {name: two, for: 1ep, optim: {lr: 0.01}}]",
        "train.for=$delete",
    )
    assert done.code == 0, done.err
    assert "one from 0, two from 6" in done.out
    assert "lr/bias: 0.005 to " in done.out


def test_plan_plots_the_learning_rate_as_a_png_file(shop: Path, epochal: Command) -> None:
    pytest.importorskip("matplotlib")
    done = epochal("plan", "config.yaml", "--png", "rate.png", "--device", "cpu")
    assert done.code == 0, done.err
    assert "events, in this order" in done.out
    assert done.out.endswith("written to rate.png\n")
    assert (shop / "rate.png").read_bytes().startswith(b"\x89PNG")


def test_png_takes_one_plan(shop: Path, epochal: Command) -> None:
    done = epochal("plan", "config.yaml", "--variant", "all", "--png", "rate.png")
    assert done.code == 78
    assert "--png takes one plan, got 2" in done.err


def test_a_run_that_trains_nothing_has_no_learning_rate(shop: Path, epochal: Command) -> None:
    done = epochal("plan", "config.yaml", "runner=test", "--plot")
    assert done.code == 78
    assert "nothing is trained" in done.err


def test_json_has_learning_rates_if_plotted(shop: Path, epochal: Command) -> None:
    (plan,) = json.loads(epochal("plan", "config.yaml", "--plot", "--json").out)
    assert plan["rates"]["steps"] == list(range(12))
    (plan,) = json.loads(epochal("plan", "config.yaml", "--json").out)
    assert plan["rates"] is None


def test_plan_shows_averaged_weights_and_the_kind_of_step(shop: Path, epochal: Command) -> None:
    words = ("plan", "config.yaml", "--device", "cpu")
    plain = epochal(*words).out
    assert "  average " not in plain
    assert "  step     eager: graphs need a CUDA device, and this one is cpu\n" in plain
    averaged = epochal(*words, "average=ema", "engine.step=eager").out
    text = "  average  Ema; val is evaluated twice, with averaged weights as val_ema\n"
    assert text in averaged
    assert "  step     eager\n" in averaged
    never = ("train.eval_every=0", "monitor=null")
    assert "  average  Ema\n" in epochal(*words, "average=ema", *never).out


GROUPS = "optim.groups=[{match: '*.bias', lr_mult: 2, name: vectors}]"


def test_plan_shows_parameter_groups(shop: Path, epochal: Command) -> None:
    lines = epochal("plan", "config.yaml", GROUPS, "--device", "cpu").out.splitlines()
    first = lines.index("parameter groups:")
    assert [line.split() for line in lines[first + 1 : first + 4]] == [
        ["group", "lr", "weight", "decay", "tensors", "parameters", "rule"],
        ["rest", "0.05", "0", "1", "12"],
        ["vectors", "0.1", "0", "1", "3", "match", "*.bias"],
    ]
    assert "parameter groups" not in epochal("plan", "config.yaml", "--device", "cpu").out


def test_plan_as_json_has_the_groups(shop: Path, epochal: Command) -> None:
    (plan,) = json.loads(epochal("plan", "config.yaml", GROUPS, "--json").out)
    assert [(row["name"], row["lr"], row["parameters"]) for row in plan["groups"]] == [
        ("rest", 0.05, 12),
        ("vectors", 0.1, 3),
    ]


def test_plan_shows_what_is_frozen(shop: Path, epochal: Command) -> None:
    done = epochal("plan", "config.yaml", "optim.freeze=[linear.weight]", "--device", "cpu")
    assert "  frozen" in done.out
    assert "15 parameters, 3 of them trained" in done.out
