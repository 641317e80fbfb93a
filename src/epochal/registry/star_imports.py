"""Star imports followed by searching source bytes, as large libraries are slow to parse."""

from __future__ import annotations

import io
import os
import re
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_STAR = re.compile(rb"^[ \t]*from[ \t]+(\.*)([.\w]*)[ \t]+import[ \t]*\*", re.MULTILINE)
_DEFINED = re.compile(rb"\n(?:class|def|async def) +([A-Za-z]\w*)")
_DECORATED = re.compile(rb"\n@[^\n]*\n(?:class|def) +([A-Za-z]\w*)")
_LISTED = re.compile(rb"\n__all__ *(?::[^\n=]*)?= *[\[(]([^\])]*)[\])]")
_QUOTED = re.compile(rb"[\"'](\w+)[\"']")
# What precedes a name on a line that defines it, or binds it in another way.
_IS_DEFINED = re.compile(rb"\s*(?:class|def|async\s+def)\s+")
_IS_BOUND = re.compile(rb".*\bimport\b.*|.*\bas\s+|[\s\w,]*")
_IN_WORD = re.compile(rb"\w")

DEFINES, BINDS = 2, 1


def absolute_name(source: str, level: int, package: str) -> str:
    """The full name of ``source`` imported with ``level`` dots by a module of ``package``."""
    if not level:
        return source
    parts = package.split(".")
    parents = parts[: len(parts) - level + 1]
    return ".".join([*parents, source] if source else parents)


@final
class StarImports:
    """Which names star imports bring, found by regular expressions over the source.

    ``locate`` gives the file of a module and whether it is a package; None without source.
    """

    def __init__(self, locate: Callable[[str], tuple[Path, bool] | None]) -> None:
        self._locate = locate
        self._stars: dict[str, tuple[str, ...]] = {}
        self._binds: dict[tuple[str, str], int] = {}

    def may_offer(self, dotted: str, name: str, *, defined: bool) -> bool:
        """Whether a module or its star imports may bind a name, or even define it."""
        wanted = DEFINES if defined else BINDS
        return any(self._binding(module, name) >= wanted for module in self._reachable(dotted))

    def offered(self, dotted: str) -> Iterator[tuple[str, str]]:
        """The public names that a module and its star imports seem to define, and where."""
        for module in self._reachable(dotted):
            text = self._read(module)
            names = _DEFINED.findall(text)
            listed = _LISTED.search(text) if b"\n__all__" in text else None
            if listed is not None:  # decorators may lengthen the list, as of registered models
                names = _QUOTED.findall(listed[1]) + _DECORATED.findall(text)
            yield from ((name.decode(), module) for name in names)

    def lacks_source(self, dotted: str) -> bool:
        """Whether a star import below here leads to a module without source."""
        return any(self._locate(module) is None for module in self._reachable(dotted))

    def _reachable(self, dotted: str) -> Iterator[str]:
        waiting, seen = [dotted], set[str]()
        while waiting:
            module = waiting.pop()
            if module not in seen:
                seen.add(module)
                yield module
                if module not in self._stars:
                    self._read(module)
                waiting.extend(self._stars[module])

    def _binding(self, dotted: str, name: str) -> int:
        key = (dotted, name)
        if key not in self._binds:
            self._binds[key] = binding_of(self._read(dotted), name)
        return self._binds[key]

    def _read(self, dotted: str) -> bytes:
        located = self._locate(dotted)
        if located is None:
            self._stars[dotted] = ()
            return b""
        file, is_package = located
        with io.FileIO(str(file)) as stream:
            text = b"\n" + stream.readall()
        if dotted not in self._stars:
            package = dotted if is_package else dotted.rpartition(".")[0]
            self._stars[dotted] = tuple(star_imports(text, package))
        return text


def star_imports(text: bytes, package: str) -> Iterator[str]:
    """The modules that a source imports with ``*``."""
    if b"import *" in text:
        for level, source in _STAR.findall(text):
            yield absolute_name(source.decode(), len(level), package)


def binding_of(text: bytes, name: str) -> int:
    """What the text does with ``name``: ``DEFINES``, maybe ``BINDS``, or 0."""
    word, most = name.encode(), 0
    start = text.find(word)
    while start >= 0:
        line = text.rfind(b"\n", 0, start) + 1
        is_whole = not _IN_WORD.match(text, start + len(word))
        if is_whole and _IS_DEFINED.fullmatch(text, line, start):
            return DEFINES
        if is_whole and not most and _IS_BOUND.fullmatch(text, line, start):
            most = BINDS
        start = text.find(word, start + 1)
    return most


def mentions(folder: Path, name: str) -> bool:
    """Whether any source below a folder contains ``name``."""
    word = name.encode()
    for parent, _, files in os.walk(folder):
        for file in files:
            if file.endswith((".py", ".pyi")):
                with io.FileIO(f"{parent}/{file}") as stream:  # thousands of paths cost time
                    if word in stream.readall():
                        return True
    return False
