"""SIGTERM or Ctrl-C at any line of the engine: no step and no point lost, the same bits after."""

from __future__ import annotations

import os
import random
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from epochal.engine import Environment, Parts, Run, Train
from epochal.engine.create_run import create_run
from epochal.engine.execute import execute
from epochal.engine.interfaces.options import Options, TrainOptions
from epochal.engine.process.signals import is_interrupted_or_preempted
from epochal.engine.runner import _evaluate_due
from epochal.engine.state.saver import Saver
from epochal.hooks.recording import Recording
from epochal.testing import CLASSES, FEATURES, TinyModel, TinyTask
from resume import Keeper, Notes, Outcome, assert_same, follow, resume

if TYPE_CHECKING:
    from types import FrameType

    from epochal.engine import RunResult

TRIALS = 80
ENDS = {signal.SIGTERM: ("preempted", 75), signal.SIGINT: ("interrupted", 130)}


class Rows(TinyTask):
    """Batches of tensors, two epochs of four."""

    def __init__(self) -> None:
        x = torch.randn(16, FEATURES, generator=torch.Generator().manual_seed(0))
        data = TensorDataset(x, x[:, :CLASSES].argmax(1))
        self.train_loader = DataLoader(data, batch_size=4, shuffle=True)
        self.val_loader = DataLoader(data, batch_size=8)

    def batch_forward(self, model: Any, batch: Any) -> Any:
        return super().batch_forward(model, {"x": batch[0]})

    def batch_loss(self, out: Any, batch: Any) -> Any:
        return super().batch_loss(out, {"label": batch[1]})

    def batch_metric(self, out: Any, batch: Any) -> Any:
        return super().batch_metric(out, {"label": batch[1]})


def build(setting: dict[str, Any]) -> Run:
    torch.manual_seed(0)
    model = TinyModel()
    parts = Parts(
        task=Rows(),
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        hooks=[Recording(every="3st")],
    )
    options = Options(train=TrainOptions(for_="2ep", eval_every="3st", sanity_batches=0))  # type: ignore[arg-type]  # as users write it
    return create_run(parts, options, Environment(**setting))


class Lines:
    """Counts the lines of the engine that run, and sends a signal at one of them.

    Args:
        number: The line that sends it, counted from 1.
        within: Functions whose lines count; empty for all.
        sent: The signal.
    """

    def __init__(
        self,
        number: int = sys.maxsize,
        within: tuple[str, ...] = (),
        sent: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.count = 0
        self._number = number
        self._sent = sent
        self._within = within

    def trace(self, frame: FrameType, event: str, arg: object) -> Any:
        if "/epochal/engine/" not in frame.f_code.co_filename:
            return None
        if event == "line" and (not self._within or frame.f_code.co_name in self._within):
            self.count += 1
            if self.count == self._number:
                os.kill(os.getpid(), self._sent)
        return self.trace


def execute_run(lines: Lines) -> tuple[Keeper, Notes, RunResult]:
    keeper, notes = Keeper(), Notes()
    run = build({"writer": notes})
    run.set_part(Saver, keeper)  # type: ignore[arg-type]  # it has what the engine uses
    # Before the run installs its handler, a signal would end pytest.
    run.on("setup", lambda: sys.settrace(lines.trace), priority=-1)
    run.on("teardown", lambda: sys.settrace(None), priority=10**6)
    before = sys.gettrace()
    try:
        return keeper, notes, execute(run, Train())
    finally:
        sys.settrace(before)


@pytest.fixture(scope="module")
def whole() -> Outcome:
    return follow(build)


@pytest.fixture(scope="module")
def num_lines() -> int:
    lines = Lines()
    assert execute_run(lines)[2].status == "finished"
    return lines.count


def signal_at(
    line: int, whole: Outcome, within: tuple[str, ...] = (), *, sent: signal.Signals
) -> None:
    keeper, notes, result = execute_run(Lines(line, within, sent))
    where = f"{sent.name} at line {line}: {result.status} {result.traceback}"
    if result.status == "finished":  # it came after the training
        assert result.exit_code == 0, where
        return
    assert (result.status, result.exit_code) == ENDS[sent], where
    if result.steps:
        state = keeper.kept[-1]
        assert state["data"]["step"] == result.steps, where
        assert len(notes.points) == state["log"]["points"], where
        assert_same(whole, resume(build, state), state)


@pytest.mark.parametrize("part", range(8))
def test_signal_at_a_random_line_of_the_engine_loses_no_step(
    part: int, whole: Outcome, num_lines: int
) -> None:
    dice = random.Random(part)
    for _ in range(TRIALS // 8):
        signal_at(dice.randrange(1, num_lines), whole, sent=dice.choice([*ENDS]))


DECIDING = (_evaluate_due.__name__, is_interrupted_or_preempted.__name__)


def test_signal_between_steps_skips_no_evaluation(whole: Outcome) -> None:
    lines = Lines(within=DECIDING)
    execute_run(lines)
    assert lines.count > 6
    for line in range(1, lines.count + 1):
        for sent in ENDS:
            signal_at(line, whole, DECIDING, sent=sent)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sent", ENDS)
def test_signal_at_every_line_of_the_engine_loses_no_step(
    whole: Outcome, num_lines: int, sent: signal.Signals, record_property: Any
) -> None:
    for line in range(1, num_lines):
        signal_at(line, whole, sent=sent)
    text = f"{sent.name} at each of {num_lines - 1} lines of the engine: resumed bit-equal"
    record_property("counted", text)
