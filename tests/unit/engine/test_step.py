"""Tests of what a step is made of."""

from __future__ import annotations

import pytest

from engine.parts import Diary, fit, make_run
from epochal.engine.step import BatchFunctions, build_step, no_step


def test_without_batch_hooks_the_task_is_called_directly() -> None:
    run = make_run(hooks=(Diary("run_start"),))
    run.events.clear()
    functions = BatchFunctions(run)
    assert functions.train == run.calls.train
    assert functions.finish is functions.report


def test_batch_hooks_hear_each_microbatch_with_its_index() -> None:
    diary = Diary("batch_start", "batch_end", "step_end")
    diary.on = ("train",)
    fit(make_run(hooks=(diary,), for_="1ep", optim={"accumulate": 3}))
    assert diary.entries == [
        *[f"batch_{moment} train {index}" for index in (0, 1, 2) for moment in ("start", "end")],
        "step_end 1",
        *[f"batch_{moment} train {index}" for index in (3, 4) for moment in ("start", "end")],
        "step_end 2",
    ]


def test_a_function_attached_during_the_run_hears_the_next_batch() -> None:
    heard: list[int] = []
    run = make_run(for_="1ep")

    def attach(run: object) -> None:
        run.on("onTrainBatchStart", lambda index: heard.append(index))

    run.on("step_end", attach, every="3st")
    fit(run)
    assert heard == [3, 4]


def test_a_run_that_was_not_prepared_takes_no_step() -> None:
    with pytest.raises(AssertionError, match="not prepared to train"):
        no_step()
