"""Recording: which points and events a record gets, and how often its status."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.optim.lr_scheduler import ExponentialLR

from epochal.engine.create_run import create_run
from epochal.engine.execute import execute
from epochal.engine.interfaces.hook import LOG_PRIORITY, Hook
from epochal.engine.interfaces.options import LogOptions
from epochal.engine.interfaces.schedule import TorchSchedule
from epochal.engine.measure.meter import Meter
from epochal.engine.parts import Parts
from epochal.engine.run.engine_run import Environment
from epochal.engine.runner import Test as Evaluate
from epochal.engine.runner import Train
from epochal.hooks.recording import Recording
from epochal.records.folder.folder import RecordOptions, create_run_folder
from epochal.records.folder.writer import RunWriter
from epochal.records.metrics.points import read_series
from epochal.testing import (
    InjectedError,
    MemoryRecord,
    TinyModel,
    TinyTask,
    execute_run,
    short_options,
    tiny_run,
)

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from epochal.engine.run.engine_run import EngineRun


class Counting(TinyTask):
    """Its n-th training batch has the metric n, so that means are predictable."""

    def __init__(self) -> None:
        super().__init__()
        self._seen = 0

    def batch_metric(self, out: object, batch: dict[str, Any]) -> dict[str, tuple[float, int]]:
        self._seen += 1
        return {"number": (float(self._seen), len(batch["label"]))}


def record(
    hook: Hook, *others: Hook, log: LogOptions | None = None, **options: Any
) -> tuple[MemoryRecord, EngineRun]:
    memory_record = MemoryRecord()
    run = tiny_run(
        hook,
        *others,
        task=Counting(),
        monitor=None,
        options=short_options(log=log, **({"sanity_batches": 0, "eval_every": 0} | options)),
        setting=Environment(writer=memory_record, tag="tiny", seed=7),
    )
    execute_run(run)
    return memory_record, run


def test_points_are_means_since_the_last_point() -> None:
    memory_record, _ = record(Recording(every="2st"), for_="6st")
    assert memory_record.series("train/number") == {2: 1.5, 4: 3.5, 6: 5.5}


def test_the_last_steps_are_recorded_without_a_full_period() -> None:
    memory_record, _ = record(Recording(every="4st"), for_="5st")
    assert memory_record.series("train/number") == {4: 2.5, 5: 5.0}


def test_learning_rates_are_recorded_with_the_losses() -> None:
    memory_record, _ = record(Recording(every="3st"), for_="6st")
    assert memory_record.series("lr") == {3: 0.1, 6: 0.1}
    assert set(memory_record.series("train/loss")) == {3, 6}


def test_the_recorded_rate_of_a_step_is_that_of_its_update() -> None:
    class Watching(Hook):
        """Notes the rate that each update uses, and halves it after step 2."""

        def __init__(self) -> None:
            self.used: dict[int, float] = {}

        def run_start(self, run: EngineRun) -> None:
            assert run.optimizer is not None
            run.optimizer.register_step_pre_hook(
                lambda one, *_: self.used.update({run.step + 1: one.param_groups[0]["lr"]})
            )

        def step_end(self, run: EngineRun) -> None:
            assert run.optimizer is not None
            if run.step == 2:
                run.optimizer.param_groups[0]["lr"] /= 2
            if run.step == 4 and run.schedule is None:
                run.change_optim(lr=0.125)

    for every in ("1st", "2st", "4st"):
        for kind in ("step", "epoch", "eval", ""):
            watching = Watching()
            watching.priority = LOG_PRIORITY - 1
            model = TinyModel()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            memory_record = MemoryRecord()
            parts = Parts(
                task=TinyTask(num_samples=12),
                model=model,
                optimizer=optimizer,
                schedule=TorchSchedule(ExponentialLR(optimizer, 0.5), unit=kind) if kind else None,
                hooks=(Recording(every=every), watching),
            )
            options = short_options(for_="9st", eval_every="1st", sanity_batches=0)
            execute_run(create_run(parts, options, Environment(writer=memory_record)))
            recorded = memory_record.series("lr")
            assert len(set(recorded.values())) > 1, (every, kind)
            wanted = {step: watching.used[step] for step in recorded}
            assert recorded == pytest.approx(wanted), (every, kind)


def test_every_parameter_group_has_its_own_rate() -> None:
    class Grouped(Hook):
        def assembled(self, run: EngineRun) -> None:
            linear: nn.Linear = run.model.linear  # type: ignore[assignment]  # of TinyModel
            groups = [{"params": [linear.weight]}, {"params": [linear.bias], "lr": 0.5}]
            run.optimizer = torch.optim.SGD(groups, lr=0.1)

    memory_record, _ = record(Recording(every="3st"), Grouped(), for_="3st")
    assert memory_record.series("lr/0") == {3: 0.1}
    assert memory_record.series("lr/1") == {3: 0.5}


def test_the_gradient_norm_is_recorded_when_it_is_measured() -> None:
    memory_record, _ = record(Recording(every="3st"), for_="3st", log=LogOptions(grad_norm=True))
    assert memory_record.series("train/grad_norm")[3] > 0
    memory_record, _ = record(Recording(every="3st"), for_="3st")
    assert not memory_record.series("train/grad_norm")


def test_zero_records_only_epochs() -> None:
    memory_record, _ = record(Recording(every=0), for_="1ep")
    assert not memory_record.series("train/number")
    assert memory_record.series("train/epoch/number") == {6: 3.5}


def test_events_are_recorded_in_order() -> None:
    memory_record = MemoryRecord()
    run = tiny_run(Recording(), setting=Environment(writer=memory_record, tag="tiny", seed=7))
    result = execute_run(run)
    kinds = [kind for kind, _ in memory_record.events]
    assert kinds[0] == "run_start"
    assert kinds[-1] == "run_end"
    assert kinds.count("eval_end") == 2
    assert kinds.index("better_model") < kinds.index("eval_end")
    data = dict(memory_record.events)
    assert data["run_start"] == {"tag": "tiny", "seed": 7, "device": "cpu"}
    assert data["eval_end"]["epoch"] == 2
    assert data["eval_end"]["metrics"] == {"val/acc": result.metrics["val/acc"]}
    assert data["better_model"]["metric"] == "val/acc"
    assert data["run_end"] == {"step": 12, "epoch": 2, "reason": "max_epochs"}


def test_an_error_is_an_event() -> None:
    class Broken(Hook):
        def step_end(self, run: EngineRun) -> None:
            raise InjectedError("on purpose")

    memory_record = MemoryRecord()
    run = tiny_run(Recording(), Broken(), setting=Environment(writer=memory_record))
    assert execute(run, Train()).status == "failed"
    data = dict(memory_record.events)
    assert data["error"] == {"step": 1, "type": "InjectedError", "message": "on purpose"}
    assert "run_end" in data


@pytest.mark.parametrize("error", [InjectedError("on purpose"), KeyboardInterrupt()])
def test_a_crash_keeps_the_points_since_the_last_period(error: BaseException) -> None:
    class Broken(Hook):
        def step_end(self, run: EngineRun) -> None:
            if run.step == 5:
                raise error

    memory_record = MemoryRecord()
    options = short_options(for_="1ep", sanity_batches=0)
    setting = Environment(writer=memory_record)
    run = tiny_run(
        Recording(every="2st"),
        Broken(),
        task=Counting(),
        options=options,
        setting=setting,
        monitor=None,
    )
    execute(run, Train())
    assert memory_record.series("train/number") == {2: 1.5, 4: 3.5, 5: 5.0}


def test_an_evaluation_alone_is_recorded_too() -> None:
    memory_record = MemoryRecord()
    execute_run(tiny_run(Recording(), setting=Environment(writer=memory_record)), Evaluate())
    assert [kind for kind, _ in memory_record.events] == ["run_start", "eval_end", "run_end"]


def test_status_is_written_at_the_start_and_not_at_every_step() -> None:
    memory_record, _ = record(Recording(every="1st"), for_="50st")
    status, fields = memory_record.statuses[0]
    assert (status, fields["step"], fields["epoch"]) == ("running", 0, 0)
    assert "start-up" in fields["times"]
    assert fields["seconds"] >= 0
    assert len(memory_record.statuses) < 5


def test_status_is_written_at_steps_after_enough_time() -> None:
    class Slow(Hook):
        """Advances the clock by two seconds at each step."""

        priority = 0

        def run_start(self, run: EngineRun) -> None:
            self._ahead = 0.0
            now = run.clock.now
            run.clock.now = lambda: now() + self._ahead

        def step_end(self, run: EngineRun) -> None:
            self._ahead += 2.0

    memory_record, _ = record(Recording(every="1st"), Slow(), for_="6st")
    assert [fields["step"] for _, fields in memory_record.statuses] == [0, 3, 6]


@pytest.mark.parametrize("value", [0.25, math.nan])
def test_a_real_record_has_points_events_and_status(tmp_path: Path, value: float) -> None:
    class Odd(TinyTask):
        def epoch_metric(self) -> dict[str, float]:
            return {"odd": value}

    options = RecordOptions(log_dir=tmp_path / "runs")
    folder = create_run_folder(options, project="p", tag="t", base=tmp_path)
    writer = RunWriter(folder)
    run = tiny_run(Recording(every="3st"), task=Odd(), setting=Environment(writer=writer))
    execute_run(run)
    writer.close()
    steps, values = read_series(folder.path, "train/loss")
    assert list(steps) == [3, 6, 9, 12]
    assert all(math.isfinite(value) for value in values)
    status = json.loads((folder.path / "status.json").read_text())
    assert status["status"] == "running"
    events = [json.loads(line) for line in (folder.path / "events.jsonl").read_text().splitlines()]
    assert [event["kind"] for event in events][-1] == "run_end"


class Late(Hook):
    """Makes means arrive a step later, like those of a GPU."""

    def setup(self, run: EngineRun) -> None:
        run.meter = Meter(is_async=True, wake=run.plan.wake)


@pytest.mark.parametrize("length", ["5st", "6st", "2ep"])
def test_late_means_are_recorded_at_their_step(length: str) -> None:
    at_once, _ = record(Recording(every="2st"), for_=length, eval_every="4st")
    later, _ = record(Recording(every="2st"), Late(), for_=length, eval_every="4st")
    assert later.points == at_once.points
    assert [kind for kind, _ in later.events] == [kind for kind, _ in at_once.events]


def test_pending_means_are_recorded_before_a_run_fails() -> None:
    class Failing(Counting):
        def batch_loss(self, out: Any, batch: Any) -> Any:
            if self._seen > 2:
                raise InjectedError
            return super().batch_loss(out, batch)

    memory_record = MemoryRecord()
    run = tiny_run(
        Recording(every="2st"),
        Late(),
        task=Failing(),
        monitor=None,
        options=short_options(sanity_batches=0, eval_every=0, for_="6st"),
        setting=Environment(writer=memory_record),
    )
    with pytest.raises(InjectedError):
        execute_run(run)
    assert memory_record.series("train/number") == {2: 1.5}
