"""Tests of whether an error left a run as it was between two steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from engine.parts import Sums, fit, make_run
from epochal.engine import Hook, Run
from epochal.engine.between_steps import is_between_steps


class Broken(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index == 6:
            raise ArithmeticError("a sample")
        return torch.zeros(3), torch.zeros(1)


def error_of(task: Any = None, *hooks: object, **options: Any) -> BaseException:
    with pytest.raises(ArithmeticError) as caught:
        fit(make_run(task, hooks=hooks, for_="1ep", **options))
    return caught.value


def test_an_error_of_the_data_comes_between_steps() -> None:
    task = Sums()
    task.train_loader = DataLoader(Broken(), batch_size=4)
    assert is_between_steps(error_of(task))


def test_an_error_of_an_evaluation_or_a_hook_at_a_boundary_does_too() -> None:
    task = Sums()
    task.val_loader = DataLoader(Broken(), batch_size=4)
    assert is_between_steps(error_of(task, eval_every="2st", sanity_batches=0))
    assert is_between_steps(error_of(task, eval_every="1ep", sanity_batches=0))

    class Failing(Hook):
        def step_end(self, run: Run) -> None:
            raise ArithmeticError

    assert is_between_steps(error_of(None, Failing()))


def test_an_error_within_a_step_does_not() -> None:
    class Failing(Sums):
        def batch_loss(self, out: Any, batch: Any) -> dict[str, Any]:
            raise ArithmeticError

    assert not is_between_steps(error_of(Failing()))


def test_neither_does_one_before_training_or_at_the_end_of_an_epoch() -> None:
    class Early(Hook):
        def run_start(self, run: Run) -> None:
            raise ArithmeticError

    class Late(Hook):
        def epoch_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
            raise ArithmeticError

    assert not is_between_steps(error_of(None, Early()))
    assert not is_between_steps(error_of(None, Late(), eval_every=0))
