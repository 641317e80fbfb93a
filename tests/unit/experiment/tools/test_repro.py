"""Tests of the check whether a training is reproducible."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal.errors import TaskError
from epochal.experiment.tools.repro import (
    ReproResult,
    check_repro,
    compare_traces,
    main,
    trace_steps,
)
from small_project import tree, write

if TYPE_CHECKING:
    from epochal.experiment.tools.repro import StepDigests

CONFIG = Path("config.yaml")


def digests_of(loss: str = "1", weight: str = "a", state: str = "x") -> StepDigests:
    return {"losses": {"loss": loss}, "weights": {"w": weight}, "optimizer": {"w.m": state}}


def test_equal_traces_are_the_same() -> None:
    compared = compare_traces([digests_of(), digests_of("2")], [digests_of(), digests_of("2")])
    assert compared == ReproResult(1)
    assert compared.is_same
    assert compared.to_json()["is_same"]


def test_first_difference_is_named_with_a_hint() -> None:
    for other, step, part, hint in (
        ([digests_of(weight="b"), digests_of("2")], 0, "weights: w", "built differently"),
        ([digests_of(), digests_of("3")], 1, "losses: loss", "the data or the forward pass"),
        (
            [digests_of(), digests_of("2", state="y")],
            1,
            "optimizer: w.m",
            "engine.deterministic=true",
        ),
        ([digests_of()], 1, "1 and 0 steps were taken", "the data"),
    ):
        compared = compare_traces([digests_of(), digests_of("2")], other)
        assert (compared.first_difference, compared.parts, compared.exit_code) == (step, (part,), 1)
        assert hint in compared.hint
        assert not compared.is_same


def test_many_differences_are_shortened() -> None:
    one: StepDigests = {"weights": {str(number): "a" for number in range(9)}}
    other: StepDigests = {"weights": {str(number): "b" for number in range(9)}}
    assert compare_traces([one], [other]).parts == ("weights: 0, 1, 2, 3, 4 and 4 more",)


def test_steps_are_traced_and_nothing_is_written(shop: Path) -> None:
    before = tree(shop)
    digests = trace_steps(CONFIG, steps=3)
    assert isinstance(digests, list)
    assert len(digests) == 4
    assert digests[0]["losses"] == {}
    assert sorted(digests[1]) == ["losses", "optimizer", "weights"]
    assert digests[1]["optimizer"].keys() == {
        "linear.weight.momentum_buffer",
        "linear.bias.momentum_buffer",
    }
    assert digests == trace_steps(CONFIG, steps=3)
    assert digests[3]["weights"] != digests[2]["weights"]
    assert tree(shop) == before


def test_a_config_that_does_not_train_is_refused(shop: Path) -> None:
    with pytest.raises(TaskError, match="trains nothing"):
        trace_steps(CONFIG, steps=3, overrides=["runner=test"])


def test_failing_training_gives_its_exit_code(shop: Path, tmp_path: Path) -> None:
    request = '{"path": "config.yaml", "steps": 2, "overrides": ["%s"], "choices": {}}'
    assert main(tmp_path / "out.json", request % "task.type=shop.parts.FloatLoss") == 70
    assert main(tmp_path / "out.json", request % "task.type=shop.parts.Nothing") == 78
    assert not (tmp_path / "out.json").exists()


@pytest.mark.long
def test_dependence_on_the_order_of_sets_is_found(shop: Path) -> None:
    """Each new process has another hash seed."""
    write(
        shop / "shop" / "sets.py",
        """
        import torch
        from shop.parts import Net

        class Shaky(Net):
            def __init__(self):
                super().__init__()
                words = {str(number) for number in range(1000)}
                with torch.no_grad():
                    self.linear.bias.fill_(float(next(iter(words))))
        """,
    )
    compared = check_repro(CONFIG, steps=2, overrides=["model=shop.sets.Shaky"])
    assert compared.first_difference == 0
    assert compared.parts[0].startswith("weights: ")
