"""Config files: their text, the line and column of each character, and their tree."""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from epochal.config.node import Node
from epochal.config.problems import MAX_BYTES, refuse
from epochal.config.scalar import show
from epochal.config.type_aliases import rename_aliases
from epochal.errors import ConfigError, MissingFileError, Place, Problem, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from epochal.config.problems import Findings

EMPTY = Node(MappingProxyType({}))

SUFFIXES = {".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json", ".py": "py"}
_SHOWN = 160
"""Columns of a source line that a message may show; longer lines are cut."""


@final
@dataclass(frozen=True, slots=True)
class SourceFile:
    """A config file and its text."""

    path: Path
    text: str


@final
@dataclass(frozen=True)
class FrozenSource:
    """A config file with the texts of all files that it needs, as they were when it was frozen."""

    path: Path
    """The main file; it need not exist any more."""

    texts: Mapping[str, str]
    """The text of each file by its absolute path."""

    cwd: str
    """The folder that relative paths start from."""

    def read(self, path: Path) -> SourceFile:
        """The frozen text of a file; MissingFileError for any other file."""
        text = self.texts.get(_absolute(Path(self.cwd, path)))
        if text is None:
            hint = "submit the config again"
            raise MissingFileError(Problem(display_name(path), "was not frozen", hint=hint))
        return SourceFile(path, text)

    def find_changed(self) -> list[Path]:
        """The files whose text is another one now; files that are gone do not count."""
        return [Path(name) for name, text in self.texts.items() if _differs(Path(name), text)]


def _differs(path: Path, text: str) -> bool:
    try:
        return read_source(path).text != text
    except MissingFileError:
        return False
    except ConfigError:  # such as an empty file
        return True


def freeze_source(path: Path, sources: Iterable[SourceFile]) -> FrozenSource:
    """A loaded config with the texts of its sources, which are not read again."""
    return FrozenSource(
        path, {_absolute(one.path): one.text for one in sources}, cwd=str(Path.cwd())
    )


def _absolute(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100  resolve() would follow links


@final
class SourceText:
    """A text that knows the line and column of each character."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        self._lines = self.text.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)

    def place(self, start: int, end: int | None = None) -> Place:
        """The place of the characters from ``start`` to ``end``, in its first line."""
        start = min(max(start, 0), len(self.text))
        number = bisect_right(self._starts, start) - 1
        line, column = self._lines[number], start - self._starts[number]
        end = start + 1 if end is None else end
        width = max(1, min(end - start, len(line) - column))
        # A tab would shift the caret, and a minified file is one long line.
        shown = line[: _SHOWN + 40].replace("\t", " ") if column < _SHOWN else ""
        return Place(self.name, number + 1, column + 1, shown, width)

    def line(self, number: int) -> str:
        """The line with that number, counted from 1; empty when there is none."""
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""

    def offset(self, line: int, column: int = 1) -> int:
        """Where in the text a line and column are, both counted from 1."""
        return self._starts[min(max(line, 1), len(self._lines)) - 1] + column - 1


def display_name(path: Path) -> str:
    """The path as a user would type it: relative if it is below the current folder."""
    absolute = Path(_absolute(path))
    try:
        return str(absolute.relative_to(Path.cwd()))
    except ValueError:
        return str(absolute)


def read_source(path: Path) -> SourceFile:
    """The text of a config file; ConfigError if it is missing, or cannot be a config."""
    name = display_name(path)
    if path.is_dir():
        what = "is a folder, not a config file"
        raise MissingFileError(Problem(name, what, hint=_alternatives(path, path)))
    if not path.exists():
        hint = _alternatives(path.parent, path)
        raise MissingFileError(Problem(name, "no such file", hint=hint))
    if path.suffix.lower() not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        refuse(name, f"unknown kind of config file {path.suffix!r}", f"name it with one of {known}")
    if not path.is_file():
        refuse(name, "is not a regular file")
    text = _decode(name, _read_bytes(path, name))
    if not text.strip():
        refuse(name, "is empty", "`epochal new` writes a config to start from")
    return SourceFile(path, text)


def _read_bytes(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        refuse(name, f"cannot be read: {error.strerror or error}")
    if len(data) > MAX_BYTES:
        refuse(name, f"is bigger than {MAX_BYTES:,} bytes", "put data into other files")
    return data


def _decode(name: str, data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        refuse(name, "is written in UTF-16", "save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        refuse(name, f"is not UTF-8: byte 0x{byte:02x} in line {line}", "save it as UTF-8")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        refuse(name, f"is not text: NUL byte in line {line}")
    return text


def _alternatives(folder: Path, missing: Path) -> str:
    try:
        found = [p for p in sorted(folder.iterdir())[:500] if p.suffix.lower() in SUFFIXES]
    except OSError:
        return f"there is no folder {display_name(folder)}"
    # Compared without suffixes, which make every two .yaml files similar.
    close = nearest(missing.stem, (path.stem for path in found))
    if close is not None:
        name = next(path.name for path in found if path.stem == close)
        return f"did you mean {name!r}?"
    shown = ", ".join(path.name for path in found[:8])
    return f"there are: {shown}" if shown else "there is no config file in that folder"


def read_document(
    source: SourceFile, findings: Findings, *, layer: str, allow_python: bool = False
) -> Node:
    """The tree of a file; empty after a mistake that leaves nothing to read."""
    text = SourceText(display_name(source.path), source.text)
    kind = SUFFIXES[source.path.suffix.lower()]
    if kind == "py" and not allow_python:
        what = "a Python config is run as code, which was not allowed"
        findings.report_file(text.name, what, hint="add --allow-python if you trust this file")
        return EMPTY
    known = len(findings.problems)
    node = _reader(kind)(text, findings, layer=layer)
    empty = node is None or (kind == "toml" and not node.mapping)
    if empty and len(findings.problems) == known:
        refuse(text.name, "is empty", "`epochal new` writes a config to start from")
    return EMPTY if node is None else as_config(node, findings, text)


def as_config(node: Node, findings: Findings, text: SourceText | None = None) -> Node:
    """The tree with component names under ``type``; reports a root that is not a mapping."""
    if node.is_mapping:
        return rename_aliases(node, findings)
    name = text.name if text else node.place.name
    hint = "write `key: value` lines"
    if text and text.text.lstrip().startswith(("[", "{")):
        hint = 'write {"key": value}'
    elif text and isinstance(node.value, str) and ":" in node.value:
        hint = "put a space after the colon: `key: value`"
    got = "a list" if node.is_list else show(node.value)[:60]
    place = node.place if node.place.line else None
    findings.report_file(name, f"the top level must be a mapping, got {got}", place, hint)
    return EMPTY


def _reader(kind: str) -> Callable[..., Node | None]:
    # Only the parser that is needed is imported.
    if kind == "toml":
        from epochal.config.read_toml import read_toml

        return read_toml
    if kind == "json":
        from epochal.config.read_json import read_json

        return read_json
    if kind == "py":
        from epochal.config.read_python import run_python

        return run_python
    from epochal.config.read_yaml import read_yaml

    return read_yaml
