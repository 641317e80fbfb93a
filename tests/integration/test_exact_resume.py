"""Small runs of every kind resume at every step bit for bit: weights, state and records."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import epochal as ep
from cells import CELLS, build
from epochal.checkpoint import read_checkpoint, write_checkpoint
from epochal.engine import Train
from epochal.engine.execute import execute
from epochal.engine.state.saver import Saver
from epochal.records import read_run
from resume import (
    Asking,
    Keeper,
    Notes,
    Outcome,
    assert_resumes_everywhere,
    assert_same,
    follow,
    point_of,
    results_of,
    resume,
)
from small_project import write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from epochal.engine import Run

    Build = Callable[[dict[str, Any]], Run]
    Count = Callable[[str, object], None]

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("cell", CELLS)
def test_run_resumes_exactly_at_every_step(cell: str, record_property: Count) -> None:
    count = assert_resumes_everywhere(partial(build, **CELLS[cell]))
    assert count >= 6
    record_property("counted", f"{cell}: resumed at {count} positions, bit-equal")


class Killed(BaseException):
    """The process is killed; its memory is lost."""


class Deadly(Keeper):
    """Writes a checkpoint after some steps, then kills the process."""

    def __init__(self, folder: Path, first: int, steps: int) -> None:
        super().__init__()
        self.path: Path | None = None
        self._folder, self._first, self._steps = folder, first, steps

    def save(self, run: Run, reason: str) -> None:
        if run.step >= self._first + self._steps:
            super().save(run, reason)
            facts = {"step": run.step, "epoch": run.epoch}
            self.path = write_checkpoint(self._folder, f"at-{run.step}", self.kept[-1], facts).path
            raise Killed


def hop(make: Build, folder: Path, steps: int) -> tuple[Outcome, int]:
    """Kill a run every few steps and resume it; gives the result and the number of kills."""
    notes = Notes()
    setting: dict[str, Any] = {"writer": notes}
    first = 0
    for count in range(100):
        asking, deadly = Asking(), Deadly(folder, first, steps)
        run = make(setting)
        run.events.add_hook(asking)
        run.set_part(Saver, deadly)  # type: ignore[arg-type]  # it has what the engine uses
        try:
            execute(run, Train(), raise_errors=True)
        except Killed:
            assert deadly.path is not None
            state, manifest = read_checkpoint(deadly.path)
            del notes.points[state["log"]["points"] :]
            setting, first = {"writer": notes, "resume": point_of(state)}, manifest.step
        else:
            return Outcome(asking.digests, notes.points), count
    raise AssertionError("the run does not end")


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("cell", ["augmented", "lbfgs", "all at once"])
def test_run_can_be_resumed_several_times_per_epoch(
    tmp_path: Path, cell: str, steps: int, record_property: Count
) -> None:
    check_hops(tmp_path, cell, steps, record_property)


@pytest.mark.torture
@pytest.mark.parametrize("steps", [1, 2, 3, 5])
@pytest.mark.parametrize("cell", CELLS)
def test_runs_of_every_kind_can_be_resumed_several_times_per_epoch(
    tmp_path: Path, cell: str, steps: int, record_property: Count
) -> None:
    check_hops(tmp_path, cell, steps, record_property)


def check_hops(folder: Path, cell: str, steps: int, count: Count) -> None:
    make = partial(build, **CELLS[cell])
    whole = follow(make)
    resumed, number = hop(make, folder, steps)
    assert resumed.digests == whole.digests
    assert resumed.points == whole.points
    count("counted", f"{cell}: resumed {number} times in one run, every {steps} st, bit-equal")


def test_number_of_workers_may_change_at_every_resume() -> None:
    cell = CELLS["all at once"]
    whole = follow(partial(build, **cell))
    assert follow(partial(build, **cell, num_workers=1)).digests == whole.digests
    for number, workers in ((1, 3), (6, 1)):
        state = whole.states[number]
        assert_same(whole, resume(partial(build, **cell, num_workers=workers), state), state)


@pytest.mark.torture
@pytest.mark.parametrize(
    "workers", [(0, 1), (0, 3), (1, 0), (1, 1), (1, 3), (3, 0), (3, 1), (3, 3)]
)
def test_run_with_workers_resumes_at_every_step(
    workers: tuple[int, int], record_property: Count
) -> None:
    cell = CELLS["all at once"]
    before, after = workers
    whole = follow(partial(build, **cell, num_workers=before))
    for state in whole.states:
        assert_same(whole, resume(partial(build, **cell, num_workers=after), state), state)
    text = f"{before} workers, then {after}: resumed at {len(whole.states)} positions, bit-equal"
    record_property("counted", text)


CONFIG = """
tag: shop
task: {type: shop.parts.Points}
model: {type: shop.parts.Net}
optim: {type: AdamW, lr: 0.05}
average: {type: ema, decay: 0.9}
train: {for: 2ep, eval_loss: true}
monitor: +val/loss  # which falls, so that the first is the best
log: {console_every: 0, record_every: 1st}
"""


def test_run_resumes_exactly_from_its_best_checkpoint(shop: Path) -> None:
    write(shop / "config.yaml", CONFIG)
    first = ep.run("config.yaml", raise_errors=True)
    assert first.dir is not None
    assert read_run(first.dir).best("val/loss", "max").step == 6
    longer = ep.resume(
        first.dir, overrides=["train.for=3ep"], resume_from="best", raise_errors=True
    )
    assert read_run(first.dir).attempts[-1].step == 6
    fresh = ep.run("config.yaml", overrides=["train.for=3ep"], raise_errors=True)
    assert longer.dir is not None
    assert fresh.dir is not None
    assert results_of(read_run(longer.dir)) == results_of(read_run(fresh.dir))
