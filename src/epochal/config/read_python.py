"""Configs from Python: mappings, argparse namespaces, OmegaConf, trusted files."""

from __future__ import annotations

import argparse
import enum
import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

from epochal.config import scalar
from epochal.config.duration import Duration
from epochal.config.node import Node, Plain, Scalar
from epochal.config.problems import Findings, join, require_limits
from epochal.errors import Place

if TYPE_CHECKING:
    from epochal.config.source_file import SourceText


def read_object(value: object, findings: Findings) -> Node:
    """The tree of a mapping, an argparse namespace or an OmegaConf object; else TypeError."""
    if isinstance(value, argparse.Namespace):
        place = Place("an argparse namespace")
    elif is_omegaconf(value):
        place = Place("an OmegaConf config")
    elif isinstance(value, Mapping):
        place = Place("a Python dict")
    else:
        what = "a config is a path, a mapping, a namespace or an OmegaConf object"
        raise TypeError(f"{what}, got {type(value).__name__}")
    return _PythonReader(place, findings, "file").read(value, "", 1)


def run_python(text: SourceText, findings: Findings, *, layer: str) -> Node | None:
    """The dict ``config`` of a Python file, whose code is executed.

    Only for files that the user trusts. An exception of the file is reported.
    """
    import runpy

    folder = os.path.dirname(os.path.abspath(text.name))  # noqa: PTH100, PTH120  sys.path: str
    sys.path.insert(0, folder)
    try:
        variables = runpy.run_path(text.name, run_name="epochal_config")
    except (Exception, SystemExit) as error:
        place = _place_of(error, text)
        shown = f"raised {type(error).__name__}: {error}"
        findings.report_file(text.name, shown, place, "run it with python to see more")
        return None
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
    if not isinstance(variables.get("config"), Mapping):
        findings.report_file(text.name, "sets no dict named 'config'", hint="write config = {...}")
        return None
    return _PythonReader(Place(text.name), findings, layer).read(variables["config"], "", 1)


def is_omegaconf(value: object) -> bool:
    """Whether the object is an OmegaConf config; does not import OmegaConf."""
    return type(value).__module__.split(".")[0] == "omegaconf"


def _place_of(error: BaseException, text: SourceText) -> Place:
    line = 0
    if isinstance(error, SyntaxError) and error.filename == text.name:
        line = error.lineno or 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == text.name:
            line = trace.tb_lineno
        trace = trace.tb_next
    if not line:
        return Place(text.name)
    written = text.line(line)
    indent = len(written) - len(written.lstrip())
    start = text.offset(line, indent + 1)
    return text.place(start, start + len(written.strip()))


@final
class _PythonReader:
    def __init__(self, place: Place, findings: Findings, layer: str) -> None:
        self._place = place
        self._findings = findings
        self._layer = layer
        self._count = 0

    def read(self, value: Plain, path: str, depth: int) -> Node:
        """The node of a Python value; a value that is not plain is reported."""
        self._count += 1
        require_limits(self._place.name, self._count, depth)
        value = _unwrap(value)
        if isinstance(value, Mapping):
            return self._node(MappingProxyType(self._entries(value, path, depth)))
        if isinstance(value, list | tuple):
            children = enumerate(value)
            return self._node(
                tuple(self.read(child, join(path, str(i)), depth + 1) for i, child in children)
            )
        return self._node(self._scalar(value, path))

    def _node(self, value: Scalar | tuple[Node, ...] | Mapping[str, Node]) -> Node:
        return Node(value, self._place, self._place, self._layer)

    def _entries(self, value: Mapping[Any, Any], path: str, depth: int) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        for key, child in value.items():
            name = str(key)
            below = join(path, name)
            if name in entries:
                self._findings.report(below, f"duplicate key {name!r}", self._place)
                continue
            entries[name] = self.read(child, below, depth + 1)
        return entries

    def _scalar(self, value: object, path: str) -> Scalar:
        if isinstance(value, str):
            if not scalar.has_surrogates(value):
                return str(value)
            what, hint = "contains half of a surrogate pair", ""
        elif isinstance(value, int) and not scalar.is_64_bit(value):
            what, hint = scalar.TOO_BIG, ""
        elif value is None or isinstance(value, bool | int | float):
            return _without_subclass(value)
        else:
            what = f"expected a plain value, got an object of {type(value).__qualname__}"
            hint = "name the class with `type:` and give its arguments"
        self._findings.report(path, what, self._place, hint)
        self._findings.broken.add(path)
        return None


def _without_subclass(value: bool | int | float | None) -> Scalar:
    # numpy's float64 is a float with another repr, which messages would show.
    if isinstance(value, float):
        return float(value)
    return value if value is None or isinstance(value, bool) else int(value)


def _unwrap(value: Plain) -> Plain:
    """The plain value of enums, paths, namespaces and other wrappers."""
    if isinstance(value, argparse.Namespace):
        value = vars(value)
    elif isinstance(value, enum.Enum):
        value = value.value
    elif isinstance(value, os.PathLike | Duration):
        value = str(value)
    elif is_omegaconf(value):
        from omegaconf import OmegaConf

        value = OmegaConf.to_container(value, resolve=False)
    elif type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = value.item()
    return value
