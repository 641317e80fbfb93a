"""Out of memory in words: how much, for which batch, and what to change."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import torch

from engine.parts import Sums, make_run
from epochal.engine import Train
from epochal.engine.device.memory import (
    explain_out_of_memory,
    is_disk_full,
    is_out_of_memory,
)
from epochal.engine.execute import execute
from epochal.experiment.record.failure import describe_failure


class Hungry(Sums):
    """Runs out of memory in a split, as a device does.

    Args:
        split: Where.
        error: What is raised then.
    """

    def __init__(self, split: str, error: BaseException) -> None:
        super().__init__()
        self.split, self.error = split, error

    def batch_forward(self, model: Any, batch: Any) -> Any:
        if model.training == (self.split == "train"):
            raise self.error
        return super().batch_forward(model, batch)


@pytest.fixture
def device_with_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {
        "max_memory_allocated": lambda _: 3 * 2**30,
        "max_memory_reserved": lambda _: 7 * 2**29,
        "mem_get_info": lambda _: (2**28, 4 * 2**30),
    }
    for name, answer in figures.items():
        monkeypatch.setattr(torch.cuda, name, answer)


def test_the_message_has_the_batch_and_what_to_change() -> None:
    for error in [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()]:
        result = execute(make_run(Hungry("train", error), for_="1ep"), Train())
        assert (result.reason, result.exit_code) == ("oom", 71), error
        lines = "\n".join(describe_failure(result))
        assert "in train at step 0, with 4x3, 4x1" in lines, error
        assert (
            "what to change: engine.microbatch=auto, which computes the same step in smaller parts"
            in lines
        ), error
        assert "engine.recompute=['LAYERS.*']" in lines, error
        assert "fewer loader workers" in lines, error
        assert lines.count("what to change") == 1, error


def test_options_that_are_set_are_not_advised() -> None:
    task = Hungry("train", torch.OutOfMemoryError("CUDA out of memory"))
    engine = {"microbatch": 4, "recompute": ["0"]}
    result = execute(make_run(task, for_="1ep", engine=engine), Train())
    lines = "\n".join(describe_failure(result))
    assert "what to change: half the batch size with optim.accumulate=2, or fewer" in lines
    assert "engine." not in lines


def test_an_evaluation_needs_smaller_batches() -> None:
    task = Hungry("val", MemoryError())
    result = execute(make_run(task, for_="1ep", sanity_batches=0), Train())
    lines = "\n".join(describe_failure(result))
    assert "in val at step 5, with 4x3, 4x1" in lines
    assert "what to change: a smaller batch size for this split" in lines


@pytest.mark.usefixtures("device_with_figures")
def test_memory_of_the_device_is_in_the_message() -> None:
    run = make_run()
    run.device = torch.device("cuda")
    error = torch.OutOfMemoryError("CUDA out of memory")
    explain_out_of_memory(run, error)
    explain_out_of_memory(run, error)
    assert error.__notes__[0] == (
        "tensors took 3.00 GiB of 4.00 GiB at most; torch had reserved 3.50 GiB, "
        "and 0.25 GiB are free now"
    )
    assert len(error.__notes__) == 3
    assert "engine.precision=bf16" in error.__notes__[2]


def test_batches_of_any_shape_are_described() -> None:
    run = make_run()
    error = MemoryError()
    code = compile("raise error", "<loop>", "exec")
    batch = {"image": torch.ones(2, 3), "meta": {"id": [torch.ones(())] * 9}, "name": "x"}
    names = {"__name__": "epochal.engine.loop", "error": error, "batch": batch}
    with pytest.raises(MemoryError):
        exec(code, names)
    explain_out_of_memory(run, error)
    assert "with image 2x3, meta.id one number, " in error.__notes__[0]
    assert error.__notes__[0].endswith("4 more")


def test_other_errors_get_no_notes() -> None:
    error = ValueError("no")
    explain_out_of_memory(make_run(), error)
    assert not hasattr(error, "__notes__")
    assert not is_out_of_memory(error)


def test_a_full_disk_is_recognised_as_the_cause_of_other_errors() -> None:
    wrapped = RuntimeError("the record cannot be written")
    wrapped.__cause__ = OSError(errno.EDQUOT, "no more for you")
    assert is_disk_full(OSError(errno.ENOSPC, "full"))
    assert is_disk_full(wrapped)
    assert not is_disk_full(OSError(errno.EIO, "broken"))
    assert not is_disk_full(MemoryError())
