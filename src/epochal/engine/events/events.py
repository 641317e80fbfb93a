"""Finds the event methods of hooks and tasks, and compiles them into one tuple per event."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from inspect import isroutine
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard, final

from epochal.engine.interfaces.binding import bind_by_name
from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.hook import (
    ALIASES,
    EVENTS,
    RUNNERS,
    STATE_METHODS,
    TASK_PRIORITY,
    USER_PRIORITY,
    Hook,
)
from epochal.engine.interfaces.splits import SPLITS, split_name
from epochal.engine.interfaces.task import OPTIONAL_METHODS, REQUIRED_METHODS
from epochal.errors import TaskError, misspelling_of, suggest
from epochal.records.metrics.time_spent import HOOKS_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from epochal.engine.interfaces.run import Run

# Methods for one split come before methods for all splits.
_NAMES = sorted((*EVENTS, *ALIASES), key=lambda name: ":" not in ALIASES.get(name, ""))
_LOAD_OPCODES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
SPLIT_EVENTS = frozenset(event for event, names in EVENTS.items() if "split" in names)


@final
@dataclass(frozen=True, slots=True)
class Listener:
    """A function that is called at one event."""

    event: str
    call: Callable[..., Any]
    """Takes all arguments of the event, in order."""

    owner: str
    """Its name in messages, such as ``EarlyStopping.eval_end``."""

    priority: int = USER_PRIORITY
    every: Every | None = None
    on: tuple[str, ...] | None = None
    """The splits at whose events it is called; None is all."""

    runners: tuple[str, ...] | None = None
    """The kinds of runner under which it is called; None is all."""

    is_builtin: bool = False
    """Whether the function is part of Epochal; user code may change parts of the run."""

    part: str = HOOKS_PREFIX
    """The part of the run's time that it counts as."""

    def accepts_split(self, split: str) -> bool:
        """Whether it is called at events of this split."""
        return self.on is None or split in self.on

    def accepts_runner(self, kind: str) -> bool:
        """Whether it is called under this kind of runner; true while the runner is unknown."""
        return not kind or self.runners is None or kind in self.runners


def hook_listeners(hook: object) -> list[Listener]:
    """The listeners of a hook: its overridden methods, by name or alias; refuses misspelt ones."""
    owner = type(hook).__name__
    _refuse_uncalled(hook, (*EVENTS, *ALIASES, *STATE_METHODS), is_strict=True)
    priority = getattr(hook, "priority", USER_PRIORITY)
    every = _period(getattr(hook, "every", None), owner)
    on = _splits(getattr(hook, "on", None), owner)
    runners = _runners(getattr(hook, "runners", None), owner)
    found = list(_listeners(hook, priority, every, on, runners))
    if not found:
        _refuse_never_called(hook, on)
    if every is not None and not every.is_never:
        _refuse_unused_period(found, every, owner)
    return found


def task_listeners(task: object) -> list[Listener]:
    """The listeners of a task: its methods named like an event or an alias."""
    known = (*REQUIRED_METHODS, *OPTIONAL_METHODS, *EVENTS, *ALIASES)
    _refuse_uncalled(task, known, is_strict=False)
    # The stage calls on_stage_start of a task itself, with more arguments than the event has.
    return list(_listeners(task, TASK_PRIORITY, None, None, exclude=("on_stage_start",)))


def function_listener(
    event: str, function: Callable[..., Any], *, priority: int, every: object
) -> Listener:
    """The listener of a function, for an event name or alias."""
    name, split = _resolve(event)
    owner = getattr(function, "__qualname__", type(function).__name__)
    call = bind_by_name(function, EVENTS[name], owner=owner)
    period = _period(every, owner)
    on = None if split is None else (split,)
    part = f"{HOOKS_PREFIX}{owner.rpartition('>.')[2]}"
    builtin = _is_builtin(function)
    listener = Listener(name, call, owner, priority, period, on, is_builtin=builtin, part=part)
    if period is not None and not period.is_never:
        _refuse_unused_period([listener], period, owner)
    return listener


def _period(every: object, owner: str) -> Every | None:
    try:
        return None if every is None else Every.parse(every)
    except ValueError as error:
        raise TaskError(f"{owner}: every: {error}") from error


def _resolve(event: str) -> tuple[str, str | None]:
    """The event of a name or alias, and the split of an alias."""
    if event in EVENTS:
        return event, None
    if event not in ALIASES:
        raise TaskError(f"{event}: no such event\n  {_suggest_event(event)}")
    name, _, split = ALIASES[event].partition(":")
    return name, split or None


def _suggest_event(name: str) -> str:
    return suggest(name, (*EVENTS, *ALIASES)) or f"events: {', '.join(EVENTS)}"


def _listeners(
    owner: object,
    priority: int,
    every: Every | None,
    on: tuple[str, ...] | None,
    runners: tuple[str, ...] | None = None,
    *,
    exclude: tuple[str, ...] = (),
) -> Iterator[Listener]:
    part = getattr(owner, "counts_as", None) or f"{HOOKS_PREFIX}{type(owner).__name__}"
    for name in _NAMES:
        method = _event_method(owner, name)
        if method is None or name in exclude:
            continue
        event, split = _resolve(name)
        full_name = f"{type(owner).__name__}.{name}"
        splits = on if split is None else (split,)
        if split is not None and on is not None and split not in on:
            continue
        call = bind_by_name(method, EVENTS[event], owner=full_name)
        yield Listener(
            event, call, full_name, priority, every, splits, runners, _is_builtin(method), part
        )


def _event_method(owner: object, name: str) -> Callable[..., Any] | None:
    """A method of the user's class; None for the empty one of ``Hook``."""
    method = getattr(owner, name, None)
    return method if _is_function(method) and not _is_inherited(owner, name) else None


def _is_function(value: object) -> TypeGuard[Callable[..., Any]]:
    """Whether it is a function or method; a module named like an event is not."""
    return isroutine(value) or isinstance(value, partial) or hasattr(value, "__wrapped__")


def _is_builtin(function: Callable[..., Any]) -> bool:
    """Whether the called code is part of Epochal, also behind a method or a partial."""
    while isinstance(function, partial):
        function = function.func
    # Not __module__, which a wrapper copies from the wrapped function.
    scope = getattr(getattr(function, "__func__", function), "__globals__", {})
    return str(scope.get("__name__", "")).split(".")[0] == "epochal"


def _is_inherited(owner: object, name: str) -> bool:
    """Whether this is the empty method of ``Hook``."""
    own = getattr(owner, "__dict__", {})
    return name not in own and getattr(type(owner), name, None) is getattr(Hook, name, owner)


def _splits(on: object, owner: str) -> tuple[str, ...] | None:
    if on is None:
        return None
    names = (on,) if isinstance(on, str) else on
    if not isinstance(names, Iterable):
        hint = f"write the names of splits, such as {SPLITS[:2]!r}"
        raise TaskError(f"{owner}: on: {on!r} is not a list of splits\n  {hint}")
    wanted = {split_name(str(name)) for name in names}
    return tuple(split for split in SPLITS if split in wanted)


def _runners(runners: object, owner: str) -> tuple[str, ...] | None:
    if runners is None:
        return None
    names = (runners,) if isinstance(runners, str) else runners
    if not isinstance(names, Iterable) or not (wanted := tuple(names)) or {*wanted} - {*RUNNERS}:
        hint = f"write some of {', '.join(RUNNERS)}, such as runners = ('train',)"
        raise TaskError(f"{owner}: runners: {runners!r} is not a list of runners\n  {hint}")
    return wanted


def _refuse_never_called(hook: object, on: tuple[str, ...] | None) -> NoReturn:
    """Refuse a hook that no event of any run would call."""
    what, hint = "has no method that an event calls", f"events: {', '.join(EVENTS)}"
    if on is not None and (named := [name for name in _NAMES if _event_method(hook, name)]):
        what = f"on: {', '.join(on)} leaves out its only events: {', '.join(named)}"
        hint = "give on the splits of these methods, or remove it"
    raise TaskError(f"{type(hook).__name__}: {what}\n  {hint}")


def _refuse_uncalled(owner: object, known: tuple[str, ...], *, is_strict: bool) -> None:
    """Refuse public methods that nothing calls, as ``epochal check`` does for a config.

    A task may have methods for other code, so only misspelt names are refused there.
    """
    bases = type(owner).__mro__
    own = [kind for kind in bases if not _is_library(kind)]
    inherited = {name for kind in bases if kind not in own for name in vars(kind)}
    for kind in own:
        for name, method in vars(kind).items():
            is_method = isinstance(method, FunctionType) or (
                callable(method) and isinstance(getattr(method, "__wrapped__", None), FunctionType)
            )
            is_method = is_method and not isinstance(method, staticmethod)
            if name.startswith("_") or name in known or name in inherited or not is_method:
                continue
            close = misspelling_of(name, known)
            if (is_strict or close is not None) and name not in find_used_attributes(*own):
                what = "no event calls" if is_strict else "nothing calls"
                raise TaskError(
                    f"{type(owner).__name__}.{name}: {what} a method of this name\n"
                    f"  {_suggest_event(name) if close is None else f'did you mean {close!r}?'}\n"
                    f"  if it is a helper method, name it _{name}"
                )


def _is_library(kind: type) -> bool:
    return kind.__module__.split(".")[0] in ("epochal", "torch", "builtins", "abc")


def _refuse_unused_period(listeners: list[Listener], every: Every, owner: str) -> None:
    events = {listener.event for listener in listeners}
    if "step_end" in events or ("epoch_end" in events and every.unit == "ep"):
        return
    raise TaskError(
        f"{owner}: every={str(every)!r} has no effect on {', '.join(sorted(events))}\n"
        "  use it with step_end, or in epochs with epoch_end"
    )


def find_used_attributes(*kinds: type) -> set[str]:
    """All attributes that are read in these classes and in their modules."""
    names: set[str] = set()
    for kind in kinds:
        module = sys.modules.get(kind.__module__)
        for value in (kind, *vars(module or kind).values()):
            if getattr(value, "__module__", None) == kind.__module__:
                names.update(name for code in _code_objects(value) for name in _attributes(code))
    return names


def _code_objects(value: object) -> Iterator[CodeType]:
    if isinstance(value, FunctionType):
        yield value.__code__
    if isinstance(wrapped := getattr(value, "__wrapped__", None), FunctionType):
        yield from _code_objects(wrapped)
    elif isinstance(value, property):
        for function in (value.fget, value.fset):
            yield from _code_objects(function)
    elif isinstance(value, cached_property):
        yield from _code_objects(value.func)
    elif isinstance(value, staticmethod | classmethod):
        yield from _code_objects(value.__func__)
    elif isinstance(value, type):
        for member in vars(value).values():
            if not isinstance(member, type):
                yield from _code_objects(member)


def _attributes(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in _LOAD_OPCODES:
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _attributes(constant)


@final
class Events:
    """The listeners of hooks and task, called in order of priority, low first."""

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
            if event == "epoch_end" and split == "train" and _is_skipped_epoch(listener, run):
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


def _is_skipped_epoch(listener: Listener, run: Run) -> bool:
    every = listener.every
    return every is not None and every.unit == "ep" and (run.epoch + 1) % every.amount != 0
