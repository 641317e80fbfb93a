"""Who listens to which event: methods of hooks and tasks found and checked by name."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from inspect import isroutine
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeGuard, final

from epochal.engine.interfaces.binding import bind_by_name
from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.hook import ALIASES, EVENTS, TASK_PRIORITY, USER_PRIORITY, Hook
from epochal.engine.interfaces.splits import SPLITS, split_name
from epochal.engine.interfaces.task import OPTIONAL_METHODS, REQUIRED_METHODS
from epochal.errors import TaskError, misspelling_of, suggest
from epochal.records.metrics.time_spent import HOOKS_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# Who asks for one split hears its events before who asks for all of them.
_NAMES = sorted((*EVENTS, *ALIASES), key=lambda name: ":" not in ALIASES.get(name, ""))


@final
@dataclass(frozen=True, slots=True)
class Listener:
    """One function that hears one event."""

    event: str
    call: Callable[..., Any]
    """Takes all arguments of the event, in order."""

    owner: str
    """What users call it, such as ``EarlyStopping.eval_end``."""

    priority: int = USER_PRIORITY
    every: Every | None = None
    on: tuple[str, ...] | None = None
    """Splits whose events it hears; all when None."""

    is_own: bool = False
    """Whether the function is Epochal's own, which changes nothing behind the engine's back."""

    part: str = HOOKS_PREFIX
    """What its time counts as."""

    def accepts_split(self, split: str) -> bool:
        """Whether it wants events of this split."""
        return self.on is None or split in self.on


def hook_listeners(hook: object) -> list[Listener]:
    """The listeners of a hook: its overridden methods, by name or alias.

    Raises:
        TaskError: A method is misspelt, wants an argument that its event does not have, or
            ``every`` would have no effect.
    """
    _refuse_misspelt(hook, (*EVENTS, *ALIASES))
    priority = getattr(hook, "priority", USER_PRIORITY)
    every = _period(getattr(hook, "every", None), type(hook).__name__)
    on = _splits(getattr(hook, "on", None), type(hook).__name__)
    found = list(_listeners(hook, priority, every, on))
    if every is not None and not every.is_never:
        _refuse_unused_period(found, every, type(hook).__name__)
    return found


def task_listeners(task: object) -> list[Listener]:
    """The listeners of a task: its methods that bear the name of an event or an alias.

    Raises:
        TaskError: A method is misspelt, or wants an argument that its event does not have.
    """
    _refuse_misspelt(task, (*REQUIRED_METHODS, *OPTIONAL_METHODS, *EVENTS, *ALIASES))
    found = _listeners(task, TASK_PRIORITY, None, None, but=("on_stage_start",))
    return list(found)  # but those that are called with more than an event has


def function_listener(
    event: str, function: Callable[..., Any], *, priority: int, every: object
) -> Listener:
    """The listener of a plain function, attached by event name or alias."""
    name, split = _resolve(event)
    owner = getattr(function, "__qualname__", type(function).__name__)
    call = bind_by_name(function, EVENTS[name], owner=owner)
    period = _period(every, owner)
    on = None if split is None else (split,)
    part = f"{HOOKS_PREFIX}{owner.rpartition('>.')[2]}"
    listener = Listener(name, call, owner, priority, period, on, _is_builtin(function), part)
    if period is not None and not period.is_never:
        _refuse_unused_period([listener], period, owner)
    return listener


def _period(every: object, owner: str) -> Every | None:
    try:
        return None if every is None else Every.parse(every)
    except ValueError as error:
        raise TaskError(f"{owner}: every: {error}") from error


def _resolve(event: str) -> tuple[str, str | None]:
    """The event behind a name or alias, and the split that an alias fixes."""
    if event in EVENTS:
        return event, None
    if event not in ALIASES:
        hint = suggest(event, (*EVENTS, *ALIASES)) or f"events: {', '.join(EVENTS)}"
        raise TaskError(f"{event}: no such event\n  {hint}")
    name, _, split = ALIASES[event].partition(":")
    return name, split or None


def _listeners(
    owner: object,
    priority: int,
    every: Every | None,
    on: tuple[str, ...] | None,
    *,
    but: tuple[str, ...] = (),
) -> Iterator[Listener]:
    part = getattr(owner, "counts_as", None) or f"{HOOKS_PREFIX}{type(owner).__name__}"
    for written in _NAMES:
        method = getattr(owner, written, None)
        if written in but or not _is_function(method) or _is_inherited(owner, written):
            continue
        event, split = _resolve(written)
        name = f"{type(owner).__name__}.{written}"
        heard = on if split is None else (split,)
        if split is not None and on is not None and split not in on:
            continue
        call = bind_by_name(method, EVENTS[event], owner=name)
        yield Listener(event, call, name, priority, every, heard, _is_builtin(method), part)


def _is_function(value: object) -> TypeGuard[Callable[..., Any]]:
    """Whether somebody wrote it to be called; a module named like an event is just a part."""
    return isroutine(value) or isinstance(value, partial) or hasattr(value, "__wrapped__")


def _is_builtin(function: Callable[..., Any]) -> bool:
    """Whether the code that runs is part of Epochal, also behind a method or a partial."""
    while isinstance(function, partial):
        function = function.func
    # Not __module__, which a wrapper copies from what it wraps.
    scope = getattr(getattr(function, "__func__", function), "__globals__", {})
    return str(scope.get("__name__", "")).split(".")[0] == "epochal"


def _is_inherited(owner: object, name: str) -> bool:
    """Whether this is the empty method of the interface itself."""
    own = getattr(owner, "__dict__", {})
    return name not in own and getattr(type(owner), name, None) is getattr(Hook, name, owner)


def _splits(on: object, owner: str) -> tuple[str, ...] | None:
    if on is None:
        return None
    names = (on,) if isinstance(on, str) else on
    if not isinstance(names, Iterable):
        hint = f"write the names of splits, such as {SPLITS[:2]!r}"
        raise TaskError(f"{owner}: on: {on!r} names no splits\n  {hint}")
    wanted = {split_name(str(name)) for name in names}
    return tuple(split for split in SPLITS if split in wanted)


def _refuse_misspelt(owner: object, known: tuple[str, ...]) -> None:
    """Refuse what the check of a config refuses too, for those who came without one."""
    own = [kind for kind in type(owner).__mro__ if not _is_library(kind)]
    for kind in own:
        for name, method in vars(kind).items():
            is_plain = isinstance(method, FunctionType) and not hasattr(method, "__wrapped__")
            if name.startswith("_") or name in known or not is_plain:
                continue
            close = misspelling_of(name, known)
            if close is not None and name not in find_used_attributes(*own):
                raise TaskError(
                    f"{type(owner).__name__}.{name}: nothing calls a method of this name\n"
                    f"  did you mean {close!r}?\n"
                    f"  a method of your own may be named _{name}"
                )


def _is_library(kind: type) -> bool:
    return kind.__module__.split(".")[0] in ("epochal", "torch", "builtins", "abc")


def _refuse_unused_period(listeners: list[Listener], every: Every, owner: str) -> None:
    events = {listener.event for listener in listeners}
    if "step_end" in events or ("epoch_end" in events and every.unit == "ep"):
        return
    raise TaskError(
        f"{owner}: every={str(every)!r} has no effect on {', '.join(sorted(events))}\n"
        "  a period is for step_end, or in epochs for epoch_end"
    )


_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


def find_used_attributes(*kinds: type) -> set[str]:
    """Every attribute that is read in these classes and in the modules where they stand."""
    names: set[str] = set()
    for kind in kinds:
        module = sys.modules.get(kind.__module__)
        for value in (kind, *vars(module or kind).values()):
            if getattr(value, "__module__", None) == kind.__module__:
                names.update(name for code in _codes(value) for name in _attributes(code))
    return names


def _codes(value: object) -> Iterator[CodeType]:
    if isinstance(value, FunctionType):
        yield value.__code__
    elif isinstance(value, property):
        for function in (value.fget, value.fset):
            yield from _codes(function)
    elif isinstance(value, staticmethod | classmethod):
        yield from _codes(value.__func__)
    elif isinstance(value, type):
        for member in vars(value).values():
            if not isinstance(member, type):
                yield from _codes(member)


def _attributes(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in _LOADS:
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _attributes(constant)
