"""Tests of finding and checking those who listen."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache, partial, wraps
from typing import Any

import pytest
import torch
from torch import nn

from engine.parts import Sums, fit, make_run
from epochal.engine import Every, Hook, Task
from epochal.engine.events.events import function_listener, hook_listeners, task_listeners
from epochal.errors import ConfigError, TaskError
from epochal.hooks.early_stopping import EarlyStopping
from epochal.testing import TinyTask


def test_only_overridden_methods_listen() -> None:
    class Loud(Hook):
        priority = 7

        def run_end(self, run: Any) -> None: ...

    (listener,) = hook_listeners(Loud())
    assert (listener.event, listener.owner, listener.priority) == ("run_end", "Loud.run_end", 7)


def test_inherited_methods_instance_functions_and_plain_objects_are_listeners() -> None:
    class Parent(Hook):
        def run_end(self, run: Any) -> None: ...

    class Child(Parent):
        pass

    class Plain:
        def after_iter(self) -> None: ...

    hook = Hook()
    hook.run_end = lambda run: None
    assert [one.owner for one in hook_listeners(Child())] == ["Child.run_end"]
    assert [one.event for one in hook_listeners(hook)] == ["run_end"]
    (listener,) = hook_listeners(Plain())
    assert (listener.event, listener.priority, listener.on) == ("batch_end", 500, None)


def test_an_alias_may_select_a_split() -> None:
    class Old:
        def onTrainBatchEnd(self, index: int) -> int:
            return index

    (listener,) = hook_listeners(Old())
    assert (listener.event, listener.on) == ("batch_end", ("train",))
    assert listener.accepts_split("train")
    assert not listener.accepts_split("val")
    assert listener.call("run", "train", 4, "batch", "out") == 4
    Old.on = ("val",)
    with pytest.raises(TaskError) as caught:
        hook_listeners(Old())
    assert str(caught.value) == (
        "Old: on: val leaves out its only events: onTrainBatchEnd\n"
        "  give on the splits of these methods, or remove it"
    )


def test_a_hook_without_an_event_method_is_refused() -> None:
    class Deaf(Hook):
        def _helper(self) -> None: ...

    for hook in (Deaf(), Hook(), object()):
        with pytest.raises(TaskError, match="has no method that an event calls\n  events: setup"):
            hook_listeners(hook)


def test_a_hook_names_the_runners_under_which_it_is_called() -> None:
    class Training(Hook):
        runners = ("train",)

        def run_start(self, run: Any) -> None: ...

    (listener,) = hook_listeners(Training())
    kinds = ("", "train", "test", "predict")
    assert [listener.accepts_runner(kind) for kind in kinds] == [True, True, False, False]
    for wrong in ((), True, ("fit",)):
        Training.runners = wrong
        with pytest.raises(TaskError, match=r"Training: runners: .* is not a list of runners\n"):
            hook_listeners(Training())


def test_splits_are_accepted_by_their_aliases() -> None:
    class Careful(Hook):
        on = ("dev",)

        def epoch_end(self, run: Any, split: str, metrics: Any) -> None: ...

    assert hook_listeners(Careful())[0].on == ("val",)
    Careful.on = "test"
    assert hook_listeners(Careful())[0].on == ("test",)
    Careful.on = {"val", "train"}
    assert hook_listeners(Careful())[0].on == ("train", "val")
    Careful.on = (split for split in ["predict", "test"])
    assert hook_listeners(Careful())[0].on == ("test", "predict")
    Careful.on = True
    with pytest.raises(TaskError, match=r"Careful: on: True is not a list of splits\n  write"):
        hook_listeners(Careful())
    Careful.on = ("dv",)
    with pytest.raises(ConfigError, match="unknown split 'dv'"):
        hook_listeners(Careful())


@pytest.mark.parametrize("general", ["onBatchEnd", "batch_end"])
def test_methods_for_one_split_come_before_methods_for_all(general: str) -> None:
    class Both(Sums):
        def __init__(self) -> None:
            super().__init__()
            self.heard: list[str] = []
            setattr(self, general, lambda: self.heard.append("any"))

        def onTrainBatchEnd(self) -> None:
            self.heard.append("train")

    task = Both()
    fit(make_run(task, for_="2st", sanity_batches=0, eval_every=0))
    assert task.heard == ["train", "any", "train", "any"]


def test_parts_named_like_an_event_are_no_listeners() -> None:
    class Mine(Task):
        error = nn.L1Loss()
        setup = dict

        def __init__(self) -> None:
            self.step_end = nn.Identity()
            self.run_end = partial(print, "over")
            self.epoch_end = print
            self.run_start = cache(lambda: None)

    heard = {listener.event for listener in task_listeners(Mine())}
    assert heard == {"run_end", "epoch_end", "run_start"}


def test_a_misspelt_event_is_refused_with_a_suggestion() -> None:
    class Wrong(Hook):
        def step_ends(self, run: Any) -> None: ...

    with pytest.raises(TaskError) as caught:
        hook_listeners(Wrong())
    assert str(caught.value) == (
        "Wrong.step_ends: no event calls a method of this name\n"
        "  did you mean 'step_end'?\n"
        "  if it is a helper method, name it _step_ends"
    )


def test_a_hook_method_that_no_event_calls_is_refused_whatever_its_name() -> None:
    for name, hint in (
        ("on_run_finish", "did you mean 'on_run_end'?"),
        ("on_end", "did you mean 'run_end'?"),
        ("close", "events: setup, assembled, "),
    ):
        parts = {name: lambda self: None, "step_end": lambda self, run: None}
        for base in (Hook, object):
            hook = type("Own", (base,), parts)()
            with pytest.raises(TaskError, match=rf"Own.{name}: no event calls .*\n  ") as caught:
                hook_listeners(hook)
            assert hint in str(caught.value), name


def test_a_decorated_hook_method_that_no_event_calls_is_refused() -> None:
    for decorate in (torch.no_grad(), torch.inference_mode(), cache, contextmanager):
        parts = {"close": decorate(lambda self: None), "step_end": lambda self, run: None}
        with pytest.raises(TaskError, match=r"Own.close: no event calls"):
            hook_listeners(type("Own", (Hook,), parts)())


def test_a_hook_method_that_a_decorated_one_calls_is_accepted() -> None:
    class Counting(Hook):
        kind = staticmethod(cache(len))

        @torch.no_grad()
        def summary(self) -> int:
            return self.amount()

        @cache  # noqa: B019  # as users do
        def amount(self) -> int:
            return 1

        @torch.no_grad()
        def run_end(self, run: Any) -> None:
            self.total = self.summary()

    assert [one.event for one in hook_listeners(Counting())] == ["run_end"]


def test_hook_methods_that_others_call_are_accepted() -> None:
    class Counting(Hook):
        def summary(self) -> int:
            return 1

        def run_end(self, run: Any) -> None:
            self.total = self.summary()

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: Any) -> None: ...

    assert [one.event for one in hook_listeners(Counting())] == ["run_end"]


def test_methods_that_are_no_misspellings_are_accepted() -> None:
    class Calling(Task):
        def batch_metric(self, out: Any, batch: Any) -> Any:
            return [one.batch_metrik for one in out]

        def batch_metrik(self, out: Any) -> Any: ...

    class Using(Task):
        @property
        def size(self) -> Any:
            return self.batch_metrik

        def batch_metrik(self, out: Any) -> Any: ...

    class Decorated(TinyTask):
        @staticmethod
        def batch_metricz() -> None: ...

        @property
        def batch_losss(self) -> None: ...

    for task in (Calling(), Using(), Decorated()):
        assert task_listeners(task) == [], task
    for name in ("on_coffee_break", "before_lunch", "batch_loss_fn", "steps", "_step_ends"):
        kind = type("Own", (Task,), {name: lambda self: None})
        assert task_listeners(kind()) == [], name


def test_a_period_without_effect_is_refused() -> None:
    class Idle(Hook):
        every = Every.parse("5st")

        def epoch_end(self, run: Any, split: str, metrics: Any) -> None: ...

    with pytest.raises(TaskError, match=r"Idle: every='5st' has no effect on epoch_end"):
        hook_listeners(Idle())
    Idle.every = "5ep"
    assert hook_listeners(Idle())[0].every == Every(5, "ep")
    Idle.every = "5 parsecs"
    with pytest.raises(TaskError, match=r"Idle: every: "):
        hook_listeners(Idle())


def test_the_task_is_called_before_hooks() -> None:
    class Mine(Task):
        def epoch_end(self, split: str) -> str:
            return split

        def onBatchStart(self, batch: Any) -> None: ...

        def batch_forward(self, model: Any, batch: Any) -> Any: ...

        def helper(self) -> None: ...

    listeners = {listener.event: listener for listener in task_listeners(Mine())}
    assert set(listeners) == {"epoch_end", "batch_start"}
    assert listeners["epoch_end"].priority == 80
    assert listeners["epoch_end"].call("run", "val", {}) == "val"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("batch_metrics", "batch_metric"),
        ("pre_batch_foward", "pre_batch_forward"),
        ("extra_batch_metric", "extra_batch_metrics"),
        ("on_epoch_ends", "on_epoch_end"),
    ],
)
def test_a_misspelt_task_method_is_refused_with_a_suggestion(name: str, meant: str) -> None:
    wrong = type("Wrong", (Task,), {name: lambda self: None})
    with pytest.raises(TaskError, match=rf"Wrong.{name}: .*\n  did you mean '{meant}'\?"):
        task_listeners(wrong())


def test_a_function_listens_to_one_event_by_name_or_alias() -> None:
    listener = function_listener("on_validation_end", lambda run: run, priority=3, every=None)
    assert (listener.event, listener.on, listener.priority) == ("eval_end", ("val",), 3)
    assert listener.call("run", "val", {}) == "run"


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(TaskError, match=r"epoch_ends: no such event\n  did you mean 'epoch_end'\?"):
        function_listener("epoch_ends", print, priority=0, every=None)
    with pytest.raises(TaskError, match=r"lunch: no such event\n  events: setup"):
        function_listener("lunch", print, priority=0, every=None)


def test_a_function_with_a_useless_period_is_refused() -> None:
    with pytest.raises(TaskError, match=r"print: every='5st' has no effect on run_end"):
        function_listener("run_end", print, priority=0, every="5st")
    assert function_listener("run_end", print, priority=0, every=0).every == Every.NEVER


def test_listeners_know_whether_their_code_is_part_of_epochal() -> None:
    hook = EarlyStopping(patience=1)
    eval_end = hook.eval_end

    @wraps(eval_end)
    def wrapper(run: Any) -> None: ...

    hook.run_end = lambda run: None
    builtin = {one.event: one.is_builtin for one in hook_listeners(hook)}
    assert builtin.pop("run_end") is False
    assert builtin
    assert all(builtin.values())
    functions = (partial(eval_end), wrapper, partial(print))
    found = [function_listener("eval_end", one, priority=0, every=None) for one in functions]
    assert [one.is_builtin for one in found] == [True, False, False]
