"""A disk whose operations fail on request; it replaces the operations of epochal.durable."""

from __future__ import annotations

import dataclasses
import errno
import os
from typing import TYPE_CHECKING, Any, NoReturn

from epochal import durable
from epochal.durable import WriteError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

ERRORS = [errno.EIO, errno.ENOSPC]


class Faults:
    """Lets ``allowed`` operations succeed and makes the next one fail, like a full disk."""

    def __init__(self, *, allowed: int, code: int = errno.EIO, short: bool = False) -> None:
        self.names: list[str] = []
        self.failed = ""
        real = durable.Operations()
        self._fail_at, self._code, self._short = allowed, code, short
        fields = [field.name for field in dataclasses.fields(real)]
        self.operations = durable.Operations(
            **{name: self._guard(name, getattr(real, name)) for name in fields}
        )

    def _guard(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self.names.append(name)
            if len(self.names) - 1 == self._fail_at:
                self.failed = name
                if name == "close":  # the kernel releases the file even when close fails
                    real(*args)
                if name == "write" and self._short:
                    return real(args[0], args[1][: len(args[1]) // 2])
                raise OSError(self._code, os.strerror(self._code))
            return real(*args)

        return call


def full_disk(room: int) -> durable.Operations:
    """A disk with room for so many writes and new folders; files can still be removed."""
    left = [room]

    def guard(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args)

        return call

    return durable.Operations(write=guard(os.write), mkdir=guard(os.mkdir))


def full_unless_gone(path: Path) -> durable.Operations:
    """A disk that is full while one file exists."""

    def write(descriptor: int, data: Any) -> int:
        if path.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(descriptor, data)

    return durable.Operations(write=write)


def read_only_disk() -> durable.Operations:
    """A read-only disk."""

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    changing = ("open", "write", "truncate", "replace", "unlink", "mkdir", "rmdir")
    return durable.Operations(**dict.fromkeys(changing, refuse))


def sweep(
    monkeypatch: pytest.MonkeyPatch, action: Callable[[], object], *, code: int
) -> list[tuple[Faults, WriteError]]:
    """Make each operation of ``action`` fail in turn; gives the faults and their errors."""
    outcomes = []
    for allowed in range(100):
        faults = Faults(allowed=allowed, code=code)
        monkeypatch.setattr(durable.system, "operations", faults.operations)
        try:
            action()
        except WriteError as error:
            outcomes.append((faults, error))
        else:
            assert not faults.failed, f"a failed {faults.failed} was swallowed"
            return outcomes
        finally:
            monkeypatch.setattr(durable.system, "operations", durable.Operations())
    raise AssertionError("the sweep does not end")


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
