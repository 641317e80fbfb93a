"""The store: named values that parts of a run share, with scopes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, final

from typing_extensions import override

from epochal.errors import TaskError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

Value = Any  # users may store any object


class MissingKeyError(KeyError):
    """A name that is not set."""

    @override
    def __str__(self) -> str:
        return str(self.args[0])


@final
class Store:
    """A table of names, cleared at the end of the run; ``scope()`` adds a temporary frame.

    A look-up reads the innermost frame and then the global table, never the frames between.
    """

    def __init__(self) -> None:
        self._globals: dict[str, Value] = {}
        self._frames: list[dict[str, Value]] = []

    def set(self, name: str, value: Value) -> None:
        """Set a new name.

        Raises:
            TaskError: The name is already set.
        """
        if not self.try_set(name, value):
            raise TaskError(
                f"store: {name!r} is already set\n"
                f"  overwrite it with force_set({name!r}, ...), or use try_set"
            )

    def try_set(self, name: str, value: Value) -> bool:
        """Set a name unless it is already set; returns whether it was set."""
        table = self._table
        if name in table:
            return False
        table[name] = value
        return True

    def force_set(self, name: str, value: Value) -> None:
        """Set or overwrite a name."""
        self._table[name] = value

    def get(self, name: str) -> Value:
        """The value of a name.

        Raises:
            MissingKeyError: The name is not set.
        """
        for table in (self._table, self._globals):
            if name in table:
                return table[name]
        hint = suggest(name, (*self._table, *self._globals))
        raise MissingKeyError(f"store: nothing is named {name!r}" + (f"\n  {hint}" if hint else ""))

    def try_get(self, name: str, default: Value = None) -> Value:
        """The value of a name, or ``default``."""
        return self._table.get(name, self._globals.get(name, default))

    def pop(self, name: str) -> Value:
        """Remove a name and return its value."""
        value = self.get(name)
        del (self._table if name in self._table else self._globals)[name]
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._table or name in self._globals

    @contextmanager
    def scope(self) -> Iterator[Store]:
        """A frame for names that exist only in the ``with`` block."""
        self._frames.append({})
        try:
            yield self
        finally:
            self._frames.pop()

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Restore all names after the ``with`` block."""
        before = dict(self._globals), [dict(frame) for frame in self._frames]
        try:
            yield
        finally:
            self._globals, self._frames = before

    def clear(self) -> None:
        """Remove all names."""
        self._globals.clear()
        self._frames.clear()

    @override
    def __reduce__(self) -> NoReturn:
        raise TaskError(
            "store: a run's store cannot be sent to another process, such as a loader worker\n"
            "  read the value that the worker needs before, and send only that value"
        )

    @property
    def _table(self) -> dict[str, Value]:
        return self._frames[-1] if self._frames else self._globals
