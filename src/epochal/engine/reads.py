"""What the code of a step reads: the position of the run, its store, attributes of the task."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from epochal.engine.run import Run
    from epochal.engine.store import Store

_POSITION = ("step", "epoch", "samples", "batch_index", "epoch_number", "latest")
_PARTS_THAT_MOVE = ("learning_rates", "feed", "clock", "monitor", "updater")
_CHANGING = (*_POSITION, *_PARTS_THAT_MOVE)


@final
@dataclass(frozen=True)
class Reads:
    """Names that steps read; what they do not read may change."""

    task: set[str] | None = field(default_factory=set)
    """Attributes of the task; None where that cannot be seen, and all of them count."""

    store: set[str] = field(default_factory=set)

    def joined(self, other: Reads) -> Reads:
        """What any of both reads."""
        is_seen = self.task is not None and other.task is not None
        task = (self.task or set()) | (other.task or set()) if is_seen else None
        return Reads(task, self.store | other.store)


@contextmanager
def noting_positions(run: Run) -> Iterator[list[str]]:
    """Note which lines outside of Epochal read the position of the run in a block.

    Such a number would be the same for ever in a captured step.
    """
    reads: list[str] = []
    own_kind: Any = type(run)

    def watched(name: str) -> property:
        inherited = getattr(own_kind, name, None)
        compute = inherited.fget if isinstance(inherited, property) else None

        def read(self: Run) -> object:
            line = outside_line(sys._getframe(1))
            if line:
                reads.append(f"run.{name} is read in {line}")
            return vars(self)[name] if compute is None else compute(self)

        def write(self: Run, value: object) -> None:
            vars(self)[name] = value

        return property(read, write)

    for name in _CHANGING:  # defaults of the class become values of the object, to be found
        if not isinstance(getattr(own_kind, name, None), property):
            vars(run).setdefault(name, getattr(run, name))
    kind = type(own_kind)(own_kind.__name__, (own_kind,), {n: watched(n) for n in _CHANGING})
    run.__class__ = kind
    try:
        yield reads
    finally:
        run.__class__ = own_kind


@contextmanager
def noting_store(store: Store) -> Iterator[set[str]]:
    """Note which names of a store are looked up in a block."""
    names: set[str] = set()
    own_kind: Any = type(store)

    def watched(method: str) -> Callable[..., object]:
        def look_up(self: Store, name: str, *default: object) -> object:
            names.add(name)
            return getattr(own_kind, method)(self, name, *default)

        return look_up

    methods = {name: watched(name) for name in ("get", "try_get", "__contains__")}
    store.__class__ = type(own_kind.__name__, (own_kind,), methods)
    try:
        yield names
    finally:
        store.__class__ = own_kind


@contextmanager
def noting_attributes(owner: object) -> Iterator[set[str] | None]:
    """Note which attributes of an object are read in a block; None where that cannot be seen."""
    names: set[str] = set()
    own_kind: Any = type(owner)

    def read(self: object, name: str) -> object:
        names.add(name)
        return own_kind.__getattribute__(self, name)

    if _notices_subclasses(own_kind):
        yield None
        return
    try:
        kind = type(own_kind)(own_kind.__name__, (own_kind,), {"__getattribute__": read})
        # Past a __setattr__ of its own, such as that of a frozen dataclass.
        object.__setattr__(owner, "__class__", kind)
    except Exception:  # its layout or its metaclass does not allow it
        yield None
        return
    try:
        yield names
    finally:
        object.__setattr__(owner, "__class__", own_kind)


def _notices_subclasses(kind: type) -> bool:
    """Whether a class keeps a list of its subclasses or the like."""
    return any(
        "__init_subclass__" in vars(one) and one.__module__ not in ("builtins", "typing")
        for one in kind.__mro__
    )


def outside_line(frame: FrameType | None) -> str:
    """The line of a frame that is neither Epochal's nor torch's; empty if it is."""
    if frame is None:
        return ""
    module = str(frame.f_globals.get("__name__", ""))
    if module.split(".")[0] in ("epochal", "torch"):
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
