"""Errors in steps that several processes share, which torch explains badly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from epochal.engine.step.shared_step import explain_shared_step

if TYPE_CHECKING:
    from collections.abc import Callable


class Wrapped(nn.parallel.DistributedDataParallel):
    """What training calls, without a process group."""

    def __init__(self) -> None:
        nn.Module.__init__(self)


class Parts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Linear(2, 1)


def notes_of(raise_error: Callable[[], object], *, world_size: int = 2) -> str:
    model = Parts()
    run: Any = SimpleNamespace(raw_model=model, world=SimpleNamespace(is_single=world_size == 1))
    try:
        raise_error()
    except Exception as error:
        explain_shared_step(error, run)
        return " ".join(getattr(error, "__notes__", []))
    raise AssertionError


def test_part_of_a_wrapped_model_is_explained() -> None:
    found = notes_of(lambda: Wrapped().critic)
    assert found == (
        "with several processes the task gets the model in DistributedDataParallel, which averages "
        "gradients when it is called: call model(...), and use critic in its forward"
    )
    assert not notes_of(lambda: Wrapped().cirtic)
    assert not notes_of(lambda: Parts().cirtic)


def test_batch_norm_of_a_single_sample_is_explained() -> None:
    def normalise() -> object:
        return nn.BatchNorm1d(2)(torch.ones(1, 2))

    expected = "this process had one sample of the batch, and batch norm needs several"
    assert notes_of(normalise).startswith(expected)
    assert not notes_of(normalise, world_size=1)


def test_unused_parameters_are_explained() -> None:
    def reduce() -> None:
        raise RuntimeError("Expected to have finished reduction in the prior iteration")

    assert "engine.find_unused=true" in notes_of(reduce)
    assert not notes_of(lambda: 1 / 0)
