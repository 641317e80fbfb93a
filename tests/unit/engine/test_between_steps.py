"""``run.is_between_steps``: whether an error left a state that can be saved and resumed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from engine.parts import Sums, fit, make_run
from epochal.engine import Hook


class Broken(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index == 6:
            raise ArithmeticError("a sample")
        return torch.zeros(3), torch.zeros(1)


class FailingLoss(Sums):
    def batch_loss(self, out: Any, batch: Any) -> dict[str, Any]:
        raise ArithmeticError


def fails_between_steps(task: Any = None, *hooks: object, **options: Any) -> bool:
    """Whether the run that fails with ArithmeticError says that it was between two steps."""
    run = make_run(task, hooks=hooks, for_="1ep", **options)
    with pytest.raises(ArithmeticError):
        fit(run)
    return run.is_between_steps


def with_broken(split: str) -> Sums:
    task = Sums()
    setattr(task, f"{split}_loader", DataLoader(Broken(), batch_size=4))
    return task


def hook_at(event: str) -> Hook:
    def fail(*_: object) -> None:
        raise ArithmeticError

    return type("Failing", (Hook,), {event: fail})()


def test_errors_of_data_and_of_due_work_come_between_steps() -> None:
    assert fails_between_steps(with_broken("train"))
    assert fails_between_steps(with_broken("val"), eval_every="2st", sanity_batches=0)
    assert fails_between_steps(with_broken("val"), eval_every="1ep", sanity_batches=0)
    assert fails_between_steps(None, hook_at("step_end"))


def test_errors_in_a_step_before_training_and_at_the_end_of_an_epoch_do_not() -> None:
    assert not fails_between_steps(FailingLoss())
    assert not fails_between_steps(None, hook_at("run_start"))
    assert not fails_between_steps(None, hook_at("epoch_end"), eval_every=0)
