"""An ordinary step reads no values and calls few functions beside the training."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import torch

from epochal.engine import Options, Parts, Run
from epochal.engine.create_run import create_run
from epochal.engine.execute import execute
from epochal.engine.interfaces.options import TrainOptions
from epochal.engine.loop import take_steps
from epochal.engine.runner import Train
from hot_path import (
    EPOCH,
    HostReads,
    Measured,
    Pairs,
    Stepwise,
    count_calls,
    full_run,
    is_ordinary,
    network,
    optimizer_of,
    take_by_hand,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from torch import Tensor

MAX_OWN_CALLS = 14
"""Calls of Epochal's own functions in an ordinary step."""


def reads_of_run(run: Run) -> list[int]:
    """Host reads of each ordinary step of a run."""
    counts: list[tuple[int, int]] = []
    with HostReads() as reads:
        execute(
            run, Stepwise(lambda run: counts.append((run.step, reads.count))), raise_errors=True
        )
    return [after - before for (_, before), (step, after) in pairwise(counts) if is_ordinary(step)]


def reads_by_hand(**optim: Any) -> int:
    """Host reads of a step of the hand-written loop."""
    loop = take_by_hand(Pairs().train_loader, clip=True, **optim)
    next(loop)
    with HostReads() as reads:
        next(loop)
        first = reads.count
        next(loop)
    assert reads.count == 2 * first
    return first


@pytest.mark.parametrize("options", [{"fused": False}, {"foreach": True}, {"fused": True}])
def test_ordinary_step_reads_as_many_values_as_the_hand_written_one(
    options: dict[str, bool],
) -> None:
    found = reads_of_run(full_run(Measured(), on_nonfinite="warn", **options))
    assert len(found) > EPOCH
    assert set(found) == {reads_by_hand(**options)}


def test_guarded_step_with_a_fused_optimizer_reads_no_value() -> None:
    assert reads_by_hand(fused=True) == 0
    assert set(reads_of_run(full_run(Measured(), fused=True))) == {0}


def test_guarded_step_with_another_optimizer_reads_one_value() -> None:
    run = full_run(Measured(), fused=False)
    found = set(reads_of_run(run))
    assert found == {reads_by_hand(fused=False) + 1}


@pytest.mark.parametrize(
    "read",
    [
        lambda loss: loss.item(),
        lambda loss: bool(loss > 0),
        lambda loss: loss.detach().tolist(),
        lambda loss: loss.detach().numpy(),
        lambda loss: loss.detach().cpu(),
        lambda loss: f"{loss!r}",
    ],
)
def test_values_that_a_task_reads_are_counted(read: Any) -> None:
    class Curious(Measured):
        def batch_loss(self, out: Tensor, batch: list[Tensor]) -> dict[str, Any]:
            losses = super().batch_loss(out, batch)
            read(losses["loss"][0])
            return losses

    assert min(reads_of_run(full_run(Curious(), fused=True))) >= 1


def plain_run() -> Run:
    """A run without hooks, after one epoch."""
    model = network()
    options = Options(train=TrainOptions(for_="9ep", eval_every=0, sanity_batches=0))
    run = create_run(Parts(task=Pairs(), model=model, optimizer=optimizer_of(model)), options)
    run.bind()
    Train().prepare(run)
    run.plan.start(run)
    take_steps(run)
    return run


def calls_per_step(short: list[Any], long: list[Any], steps: int) -> Counter[Any]:
    """Calls of one step, without those of the epoch around it."""
    difference = Counter(long)
    difference.subtract(Counter(short))
    return Counter({name: count // steps for name, count in difference.items() if count // steps})


def calls_by_hand(steps: int) -> list[Any]:
    """Calls of some steps of the hand-written loop."""
    loop = take_by_hand(Pairs().train_loader, clip=False)
    next(loop)
    return count_calls(lambda: [next(loop) for _ in range(steps)])


def calls_of_run(steps: int, before_step: Callable[[], object] | None = None) -> list[Any]:
    """Calls of a run in an epoch of some steps; ``before_step`` is called in each."""
    run = plain_run()
    run.feed.limit = steps
    if before_step is not None:
        take_step = run.take_step
        run.take_step = lambda microbatches: (before_step(), take_step(microbatches))
    first = run.step
    calls = count_calls(lambda: take_steps(run))
    assert run.step - first == steps
    return calls


def test_ordinary_step_calls_fewer_functions_than_the_hand_written_one() -> None:
    hand = calls_per_step(calls_by_hand(4), calls_by_hand(12), 8)
    ours = calls_per_step(calls_of_run(4), calls_of_run(12), 8)
    of_generator = 1  # the hand-written loop is a generator here, to stop it after any step
    assert 0 < ours.total() < hand.total() - of_generator
    own = {name: count for name, count in ours.items() if "epochal" in name[0]}
    assert 0 < sum(own.values()) <= MAX_OWN_CALLS, own


def test_call_added_to_each_step_is_counted() -> None:
    def added() -> None:
        pass

    plain = calls_per_step(calls_of_run(4), calls_of_run(12), 8)
    more = calls_per_step(calls_of_run(4, added), calls_of_run(12, added), 8)
    names = {name[1]: count for name, count in (more - plain).items()}
    assert names == {"added": 1, "<lambda>": 1}


def test_ordinary_step_calls_no_tracker(tmp_path: Path) -> None:
    called: list[tuple[int, set[str]]] = []
    calls: list[tuple[str, str]] = []

    def look(run: Run) -> None:
        called.append(
            (run.step, {name for file, name in calls if "track" in file or "mirr" in file})
        )
        calls.clear()

    run = full_run(Measured(), dir=tmp_path, fused=True)
    seen = sys.getprofile()
    sys.setprofile(lambda frame, event, _: calls.append(_place(frame)) if event == "call" else None)
    try:
        execute(run, Stepwise(look), raise_errors=True)
    finally:
        sys.setprofile(seen)
    tracked = {step for step, names in called if names}
    assert tracked
    assert not [step for step in tracked if is_ordinary(step)]


def _place(frame: FrameType) -> tuple[str, str]:
    return frame.f_code.co_filename, frame.f_code.co_name


def test_weights_equal_those_of_the_hand_written_loop() -> None:
    run = plain_run()
    task, model = Pairs(), network()
    optimizer = optimizer_of(model)
    for microbatches in create_run(Parts(task=task, model=model)).feed.epoch(0):
        loss = torch.nn.functional.cross_entropy(model(microbatches[0][0]), microbatches[0][1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    pairs = zip(model.state_dict().values(), run.model.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
