"""Tests of a task whose loaders have parts of its training data."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import epochal as ep
from epochal.errors import ConfigError
from epochal.testing import TinyModel, TinyTask
from small_project import Command, write

if TYPE_CHECKING:
    from pathlib import Path


class Noting(ep.Hook):
    """Keeps the loaders of each run."""

    def __init__(self) -> None:
        self.kept: list[tuple[Any, Any]] = []

    def run_start(self, run: ep.Run) -> None:
        self.kept.append((run.task.train_loader, run.task.val_loader))


def run(task: ep.Task, hook: object = (), **train: Any) -> ep.RunResult:
    return ep.Experiment(
        task=task,
        model=TinyModel(),
        optim={"type": "SGD", "lr": 0.1},
        train={"for": "1ep", **train},
        hooks=[hook] if hook else [],
        choices={"no_file": True, "raise_errors": True},
    ).fit()


def test_labels_are_spread_evenly_on_request() -> None:
    noting = Noting()
    run(TinyTask(num_samples=30), noting, folds=3, stratify="label")
    counts = [Counter(int(one["label"]) for one in val.dataset) for _, val in noting.kept]
    for label in range(3):
        found = [count[label] for count in counts]
        assert max(found) - min(found) <= 1


def test_an_unknown_label_is_refused_before_training() -> None:
    with pytest.raises(
        ConfigError, match=r"train\.stratify: neither .*'lable'(.|\n)*keys x, label"
    ):
        run(TinyTask(), folds=3, stratify="lable")


def test_loaders_that_cannot_be_replaced_are_refused() -> None:
    class Fixed(TinyTask):
        @property
        def val_loader(self) -> Any:  # type: ignore[override]  # that is the point
            return None

        @val_loader.setter
        def val_loader(self, value: Any) -> None:
            if type(value.dataset).__name__ == "Subset":
                raise AttributeError("can't set attribute")

    with pytest.raises(ConfigError, match=r"Fixed\.val_loader cannot be replaced"):
        run(Fixed(), folds=3)


def test_an_evaluation_of_a_fold_needs_no_folds(shop: Path, epochal: Command) -> None:
    result = ep.run("config.yaml", overrides=["train.folds=3", "train.for=1ep"])
    fold = str(result.dir / "folds" / "2")
    assert epochal("test", fold).code == 0


def test_the_plan_of_a_cross_validation_is_that_of_its_first_fold(
    shop: Path, epochal: Command
) -> None:
    write(shop / "folds.yaml", "$BASE: config.yaml\ntrain: {folds: 3}\n")
    out = epochal("plan", "folds.yaml").out
    assert out.startswith("shop, fold 1 of 3\n")
    assert "train 16 samples" in out
    assert "val 8 samples" in out
