"""The listeners of a run, compiled into one tuple per event and split."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from epochal.engine.events.listeners import (
    Listener,
    function_listener,
    hook_listeners,
    task_listeners,
)
from epochal.engine.interfaces.hook import EVENTS
from epochal.engine.interfaces.splits import SPLITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from epochal.engine.interfaces.run import Run

SPLIT_EVENTS = frozenset(event for event, names in EVENTS.items() if "split" in names)


@final
class Events:
    """The listeners of a run, called in order of priority, low first.

    Args:
        hooks: Objects whose event methods are called.
        task: Its event methods are called too.
    """

    def __init__(self, hooks: Iterable[object] = (), *, task: object = None) -> None:
        self.hooks = list(hooks)
        """The hooks, in the order in which they were added."""

        self._listeners = [listener for hook in self.hooks for listener in hook_listeners(hook)]
        self._task_listeners: list[Listener] = []
        self._runner = ""
        self._table: dict[tuple[str, str], tuple[Listener, ...]] = {}

        self.has_run_user_code = False
        """Whether user code was called; reset by its reader."""

        self.set_task(task)

    def set_task(self, task: object) -> None:
        """Listen with the event methods of another task instead."""
        self._task_listeners = [] if task is None else task_listeners(task)
        self._compile()

    def set_runner(self, kind: str) -> None:
        """Call only the hooks that act under this kind of runner."""
        self._runner = kind
        self._compile()

    def add_hook(self, hook: object) -> None:
        """Add a hook, called from the next event on."""
        self._listeners.extend(hook_listeners(hook))
        self.hooks.append(hook)
        self._compile()

    def add_function(
        self, event: str, function: Callable[..., object], *, priority: int, every: object
    ) -> None:
        """Add a function for one event."""
        self._listeners.append(function_listener(event, function, priority=priority, every=every))
        self._compile()

    def clear(self) -> None:
        """Remove all listeners."""
        self._listeners.clear()
        self.hooks.clear()
        self.set_task(None)

    def listeners(self, event: str, split: str = "") -> tuple[Listener, ...]:
        """The listeners of an event in order; ``split`` is needed for events that have one."""
        return self._table[event, split]

    def fire(self, event: str, run: Run, *values: object) -> None:
        """Call all listeners of an event; an exception gets a note with the listener's name."""
        split = str(values[0]) if event in SPLIT_EVENTS else ""
        for listener in self._table[event, split]:
            if event == "epoch_end" and split == "train" and _skips(listener, run):
                continue
            self.call(listener, run, *values)

    def fire_and_collect_errors(self, event: str, run: Run, *values: object) -> list[BaseException]:
        """Call all listeners of an event even if some fail; returns all exceptions."""
        errors: list[BaseException] = []
        for listener in self._table[event, ""]:
            try:
                self.call(listener, run, *values)
            except BaseException as error:
                errors.append(error)
        return errors

    def call(self, listener: Listener, run: Run, *values: object) -> None:
        """Call a listener; an exception gets a note with its name."""
        if not listener.is_builtin:
            self.has_run_user_code = True
        times = run.clock.times
        before = times.switch(listener.part)
        try:
            listener.call(run, *values)
        except Exception as error:
            error.add_note(f"raised in {listener.owner}, called at {listener.event}")
            raise
        finally:
            times.switch(before)

    def _compile(self) -> None:
        unordered = [*self._task_listeners, *self._listeners]
        acting = [one for one in unordered if one.accepts_runner(self._runner)]
        ordered = sorted(acting, key=lambda listener: listener.priority)
        for event in EVENTS:
            called = [listener for listener in ordered if listener.event == event]
            if event == "teardown":
                called.reverse()
            for split in SPLITS if event in SPLIT_EVENTS else ("",):
                self._table[event, split] = tuple(
                    listener for listener in called if not split or listener.accepts_split(split)
                )


def _skips(listener: Listener, run: Run) -> bool:
    every = listener.every
    return every is not None and every.unit == "ep" and (run.epoch + 1) % every.amount != 0
