"""Variables: what the record takes beside the means of training, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from epochal.engine.interfaces.hook import Hook
from epochal.engine.interfaces.options import EngineOptions, Options
from epochal.engine.run.engine_run import Environment
from epochal.engine.run.variables import request_variables
from epochal.errors import TaskError
from epochal.hooks.recording import Recording
from epochal.testing import MemoryRecord, TinyTask, execute_run, short_options, tiny_run

if TYPE_CHECKING:
    from epochal.engine.run.engine_run import EngineRun


class Warming(TinyTask):
    """Becomes warmer with each batch of training, and says how warm."""

    def __init__(self) -> None:
        super().__init__()
        self.heat = 0
        self.asked = 0

    def run_start(self, run: EngineRun) -> None:
        run.variables["heat"] = self.read_heat

    def onTrainBatchEnd(self) -> None:
        self.heat += 1

    def read_heat(self) -> int:
        self.asked += 1
        return self.heat


def record(task: object = None, *hooks: object, options: Options | None = None) -> MemoryRecord:
    memory_record = MemoryRecord()
    known = options or short_options(sanity_batches=0, eval_every=0)
    run = tiny_run(
        Recording(every="3st"),
        *hooks,
        task=task,
        monitor=None,
        options=known,
        setting=Environment(writer=memory_record),
    )
    execute_run(run)
    return memory_record


class Naming(Hook):
    """Has a variable in the record."""

    def __init__(self, value: object) -> None:
        self._value = value

    def run_start(self, run: EngineRun) -> None:
        run.variables["own"] = lambda: self._value


def test_variables_are_read_only_when_a_point_is_recorded() -> None:
    task = Warming()
    assert record(task).series("heat") == {3: 3.0, 6: 6.0, 9: 9.0, 12: 12.0}
    assert task.asked == 4


def test_variables_of_hooks_may_be_tensors() -> None:
    memory_record = record(None, Naming(torch.tensor([0.5], requires_grad=True)))
    assert memory_record.series("own") == dict.fromkeys((3, 6, 9, 12), 0.5)


def test_variables_are_in_the_same_point_as_losses_and_rates() -> None:
    _, values = record(None, Naming(2)).points[0]
    assert set(values) == {"train/loss", "train/acc", "lr", "own"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [("warm", "'warm'"), (None, "None"), (torch.ones(2), "a tensor of shape (2,)")],
)
def test_a_variable_that_is_no_number_is_refused(value: object, shown: str) -> None:
    with pytest.raises(TaskError) as error:
        record(None, Naming(value))
    assert str(error.value) == (
        f"run.variables['own']: returned {shown}, not a number\n"
        "  return a float or a tensor with one element"
    )


def test_a_variable_that_raises_is_named() -> None:
    class Broken(Hook):
        def run_start(self, run: EngineRun) -> None:
            run.variables["ratio"] = lambda: 1 / 0

    with pytest.raises(ZeroDivisionError) as error:
        record(None, Broken())
    assert "raised by run.variables['ratio']" in error.value.__notes__


def test_variables_of_users_count_as_user_code() -> None:
    run = tiny_run()
    request_variables(run)
    assert not run.events.has_run_user_code
    run.variables["own"] = lambda: 1.0
    request_variables(run)
    assert run.events.has_run_user_code


def test_the_scale_of_the_loss_is_recorded_with_fp16() -> None:
    train = short_options(sanity_batches=0, eval_every=0).train
    memory_record = record(options=Options(train=train, engine=EngineOptions(precision="fp16")))
    assert memory_record.series("loss_scale") == dict.fromkeys((3, 6, 9, 12), 65536.0)
    assert not record().series("loss_scale")
