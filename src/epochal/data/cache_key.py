"""The key of a cache on disk: a text that changes with the pipes, their code and their files."""

from __future__ import annotations

import hashlib
import re
import sys
import sysconfig
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from epochal.data.pipe import Pipe

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_PATH = 1000
_LIBRARIES = ("/site-packages/", "/dist-packages/", "<frozen ")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_SKIPPED = ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__")
_OURS = ("epochal.data.chain",)
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.ndarray, np.generic, torch.Tensor)
_GROUPS = (list, tuple, dict, set, frozenset)


def cache_key(pipe: Pipe) -> str:
    """A text that changes with the pipes of a chain, their functions and their files."""
    digest, describer = hashlib.sha256(), _Describer()
    one: Pipe | None = pipe
    while one is not None:
        digest.update(describer.describe(one).encode())
        one = getattr(one, "parent", None)
    return digest.hexdigest()[:16]


@final
class _Describer:
    """Describes values, so that equal ones have the same text in every process.

    Code of the user is followed: a function, what it calls and the constants that it reads. Code of
    libraries is described by its name.
    """

    def __init__(self) -> None:
        self._seen: dict[int, object] = {}  # kept, so that no other object gets the same id

    def describe(self, value: Any) -> str:  # noqa: ANN401 - of any type
        if isinstance(value, str):
            return _describe_text(value)
        if isinstance(value, torch.Tensor):
            return self.describe(value.detach().cpu().numpy())
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
        if isinstance(value, _PLAIN):
            return repr(value)
        if isinstance(value, ModuleType):
            return value.__name__
        if id(value) in self._seen:
            return f"again {getattr(value, '__qualname__', type(value).__qualname__)}"
        if isinstance(value, _GROUPS):
            return self._describe_group(value)
        self._seen[id(value)] = value
        return self._describe_object(value)

    def _describe_group(self, value: Any) -> str:  # noqa: ANN401 - one of _GROUPS
        self._seen[id(value)] = value
        if isinstance(value, dict):
            texts = [f"{self.describe(key)}: {self.describe(one)}" for key, one in value.items()]
        else:
            texts = list(map(self.describe, value))
        del self._seen[id(value)]  # only a group inside of itself would not end
        if isinstance(value, set | frozenset):
            texts.sort()
        return f"{type(value).__name__}[{', '.join(texts)}]"

    def _describe_object(self, value: Any) -> str:  # noqa: ANN401 - of any type
        if isinstance(value, FunctionType):
            return self._describe_function(value)
        if isinstance(value, MethodType):
            return f"{self.describe(value.__func__)} {self.describe(value.__self__)}"
        if isinstance(value, partial):
            return self.describe([value.func, list(value.args), value.keywords])
        if isinstance(value, type):
            return self._describe_class(value)
        state = getattr(value, "__dict__", None)
        if state is not None and (isinstance(value, Pipe) or type(value).__module__ in _OURS):
            names = [name for name in sorted(state) if not name.startswith("_")]
            state = {name: state[name] for name in names if name not in ("parent", "number")}
        shown = _ADDRESS.sub("", repr(value)) if state is None else self.describe(dict(state))
        return f"{self.describe(type(value))} {shown}"

    def _describe_function(self, function: FunctionType) -> str:
        name = f"{function.__module__}.{function.__qualname__}"
        if _is_library(function.__module__, function.__code__.co_filename):
            return name
        cells = [_get_cell(cell) for cell in function.__closure__ or ()]
        values = [function.__defaults__, function.__kwdefaults__, cells]
        used = [self._describe_used(one) for one in _find_used(function)]
        return f"{name} {_describe_code(function.__code__)} {self.describe(values)} {used}"

    def _describe_used(self, value: Any) -> str:  # noqa: ANN401 - of any type
        """A global of the user's code; of an object of a library only the class."""
        kind = type(value)
        is_code = isinstance(value, FunctionType | MethodType | type | ModuleType | partial)
        is_known = is_code or isinstance(value, (*_PLAIN, *_GROUPS))
        return self.describe(value if is_known or not _is_library(kind.__module__) else kind)

    def _describe_class(self, kind: type) -> str:
        texts = []
        for one in kind.__mro__:
            texts.append(f"{one.__module__}.{one.__qualname__}")
            if not _is_library(one.__module__):
                entries = sorted(vars(one).items())
                texts += [
                    f"{name}={self._describe_used(_unwrap(value))}"
                    for name, value in entries
                    if name not in _SKIPPED
                ]
        return " ".join(texts)


def _describe_text(text: str) -> str:
    is_file = len(text) < _LONGEST_PATH and "\0" not in text and Path(text).is_file()
    facts = Path(text).stat() if is_file else None
    return repr(text) if facts is None else f"{text} {facts.st_size} {facts.st_mtime_ns}"


def _describe_code(code: CodeType) -> str:
    constants = [_describe_constant(one) for one in code.co_consts]
    names = (code.co_names, code.co_varnames, code.co_freevars)
    return f"{code.co_code.hex()} {names} {constants}"


def _describe_constant(value: object) -> str:
    if isinstance(value, CodeType):
        return _describe_code(value)
    if isinstance(value, tuple | frozenset):
        texts = [_describe_constant(one) for one in value]
        return repr(texts if isinstance(value, tuple) else sorted(texts))
    return repr(value)


def _find_used(function: FunctionType) -> Iterator[object]:
    """The globals that a function uses by name, and what it uses of modules of the user."""
    names = sorted(set(_find_names(function.__code__)))
    found = [function.__globals__[name] for name in names if name in function.__globals__]
    yield from found
    for module in found:
        if isinstance(module, ModuleType) and not _is_library(module.__name__):
            yield from (vars(module)[name] for name in names if name in vars(module))


def _find_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _find_names(one)


def _get_cell(cell: Any) -> Any:  # noqa: ANN401 - a cell of any value
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _unwrap(value: Any) -> Any:  # noqa: ANN401 - an entry of a class
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    return [value.fget, value.fset] if isinstance(value, property) else value


def _is_library(module: str, file: str = "") -> bool:
    """Whether code is not the user's: its file is that of an installed or of our own package."""
    found = file or getattr(sys.modules.get(module), "__file__", None)
    if module == "__main__":
        return False
    if found is None or module.partition(".")[0] == "epochal":
        return True
    is_standard = found.startswith(sysconfig.get_path("stdlib"))
    return is_standard or any(part in found for part in _LIBRARIES)
