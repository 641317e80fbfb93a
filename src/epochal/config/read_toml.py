"""TOML into a tree with places: values from ``tomllib``, positions from a scan."""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from epochal.config import scalar
from epochal.config.node import Node, Plain
from epochal.config.problems import MAX_DEPTH, MAX_NODES, refuse_depth, refuse_size
from epochal.errors import Place

if TYPE_CHECKING:
    from epochal.config.problems import Findings
    from epochal.config.source_file import SourceText

_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_SIGNED_INF = re.compile(r"[-+]?inf")
_WORD_HINTS = {
    "null": 'write "$null"',
    "None": 'write "$null"',
    "True": "write true",
    "False": "write false",
    ".inf": "write inf",
    ".nan": "write nan",
}
_HINTS = {
    "expected '='": "write `key = value`",
    "key part": "write `key = value`",
    "invalid statement": "write `key = value` or [section]",
    "table declaration": "write [section]",
    "inline table": "an inline table must be on one line; use a [section] for a longer one",
    "unclosed array": "add a comma or a ]",
    "quote is never": "add a quote of the same kind",
    "expected newline": "one `key = value` per line; numbers have no leading zeros",
    "escape": "use 'single quotes' for text with backslashes",
}
_OPEN_QUOTE = re.compile(
    """Expected "'"|Unterminated string|Expected '\"'|Illegal character '.n'"""
)
_ENDLESS_NUMBER = re.compile(r"[0-9_]{4000,}")


def read_toml(text: SourceText, findings: Findings, *, layer: str) -> Node | None:
    """The tree of a TOML document, or nothing after a syntax error was reported."""
    import tomllib

    places = TomlScan(text)
    try:
        plain = tomllib.loads(text.text)
    except (ValueError, RecursionError) as error:  # int() raises its own for endless digits
        _explain(error, text, places, findings)
        return None
    nowhere = Spot(Place(text.name), Place(text.name))

    def build(value: Plain, path: Path) -> Node:
        spot = places.spots.get(path, nowhere)
        if isinstance(value, dict):
            value = MappingProxyType({k: build(v, (*path, k)) for k, v in value.items()})
        elif isinstance(value, list):
            value = tuple(build(child, (*path, i)) for i, child in enumerate(value))
        elif isinstance(value, int | float):
            value = _number(value, spot, path, findings)
        elif not isinstance(value, str):  # a date or time: as text, like in YAML and JSON
            value = spot.written or str(value)
        return Node(value, spot.place, spot.key_place, layer)

    return build(plain, ())


def _number(value: float, spot: Spot, path: Path, findings: Findings) -> float:
    if isinstance(value, int):
        what = "" if scalar.is_64_bit(value) else scalar.TOO_BIG
    else:
        is_written = _SIGNED_INF.fullmatch(spot.written or "inf")
        what = "number is too big for a float" if math.isinf(value) and not is_written else ""
    if not what:
        return value
    key = ".".join(map(str, path))
    findings.report(key, f"{what}, got {scalar.shorten(spot.written)}", spot.place)
    findings.broken.add(key)
    return 0


def _explain(error: Exception, text: SourceText, places: TomlScan, findings: Findings) -> None:
    if places.duplicate is not None:
        path, first, second = places.duplicate
        names = [part for part in path if isinstance(part, str)]
        hint = f"first set in line {first.key_place.line}; keep one of the two"
        what = f"duplicate key {names[-1]!r}"
        findings.report_file(".".join(names), what, second.key_place, hint)
        return
    message = str(error)
    position = _POSITION.search(message)
    if position is None:
        digits = _ENDLESS_NUMBER.search(text.text)
        what = "a number has too many digits" if digits else "is not TOML"
        at = digits.start() if digits else places.at
        findings.report_file(text.name, what, text.place(at), "")
        return
    at = len(text.text.rstrip())
    if position[1]:
        at = text.offset(int(position[1]), int(position[2]))
    what, place = message[: position.start()], text.place(at)
    if _OPEN_QUOTE.match(what):
        what, place = "this quote is never closed", text.place(places.at)
    what = "this is not a TOML value" if what == "Invalid value" else what[:1].lower() + what[1:]
    findings.report_file(text.name, what, place, _hint(what, text, place))


def _hint(what: str, text: SourceText, place: Place) -> str:
    line = text.line(place.line)
    rest = line[place.column - 1 :].strip()
    if line.lstrip().startswith("$"):
        return f'put a key with a $ in quotes: "{line.split("=")[0].strip()[:40]}"'
    if what == "this is not a TOML value":
        return _value_hint(rest)
    if "key part" in what and "{" in line:
        return "an inline table must be on one line; use a [section] for a longer one"
    return next((hint for part, hint in _HINTS.items() if part in what), "")


def _value_hint(rest: str) -> str:
    word = re.split(r"[\s,\]}#]", rest, maxsplit=1)[0]
    if word in _WORD_HINTS:
        return _WORD_HINTS[word]
    if re.fullmatch(r"\.[0-9]+", word):
        return f"write 0{word}"
    return f'put a text in quotes: "{scalar.shorten(rest)}"'


Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^\\"]|\\.|"{1,2}(?!"))*"{3,5}'
    r"|'''(?:[^']|'{1,2}(?!'))*'{3,5}"
    r'|"(?!"")(?:[^"\\\n]|\\.)*"'
    r"|'(?!'')[^'\n]*'",
    re.DOTALL,
)
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:[0-9:.]+(?:Z|[+-]\d\d:\d\d)?")
_WORD = re.compile(r"[^\s,\]}#=\[{\"']+")
_SCALARS = (_STRING, _DATE_TIME, _WORD)


class _NotToml(Exception):  # noqa: N818  never leaves this module
    """The text is not TOML from here on; ``tomllib`` reports why."""


@final
@dataclass
class Spot:
    """The position of a value and of its key."""

    place: Place
    key_place: Place
    written: str = ""
    """The value's own text."""


@final
class TomlScan:
    """The places of all keys and values of a TOML text, up to the first syntax error."""

    def __init__(self, text: SourceText) -> None:
        self.spots: dict[Path, Spot] = {}
        self.duplicate: tuple[Path, Spot, Spot] | None = None
        """The first key that is set twice: its path, its first and its second spot."""

        self.at = 0
        """The offset at which the scan stopped."""

        self._text = text
        self._all = text.text
        self._array_sizes: dict[Path, int] = {}
        self._declared: set[Path] = set()
        self._values: set[Path] = set()

        with contextlib.suppress(_NotToml):
            self._scan()

    def _scan(self) -> None:
        table: Path = ()
        while True:
            self._skip(_BLANK)
            if self.at >= len(self._all):
                return
            if self._take("[["):
                table = self._array_header()
            elif self._take("["):
                table = self._table_header()
            else:
                self._assignment(table, 0)

    def _table_header(self) -> Path:
        parts, place = self._key()
        self._expect("]")
        path = self._through_arrays(parts)
        self._note(path, Spot(place, place), implied=path not in self._declared)
        self._declared.add(path)
        return path

    def _array_header(self) -> Path:
        parts, place = self._key()
        self._expect("]]")
        path = (*self._through_arrays(parts[:-1]), parts[-1])
        size = self._array_sizes.get(path, 0)
        self._array_sizes[path] = size + 1
        self._note(path, Spot(place, place), implied=True)
        self._note((*path, size), Spot(place, place), implied=True)
        self._declared.add((*path, size))
        return (*path, size)

    def _through_arrays(self, parts: list[str]) -> Path:
        path: Path = ()
        for part in parts:
            path = (*path, part)
            if size := self._array_sizes.get(path):
                path = (*path, size - 1)
        return path

    def _assignment(self, table: Path, depth: int) -> None:
        parts, key_place = self._key()
        path = (*table, *parts)
        self._skip(_SPACE)
        self._expect("=")
        self._skip(_SPACE)
        start = self.at
        for length in range(len(table) + 1, len(path)):
            implied = path[:length] not in self._values
            self._note(path[:length], Spot(key_place, key_place), implied=implied)
        self._value(path, key_place, depth + 1)
        spot = Spot(self._text.place(start, self.at), key_place, self._all[start : self.at])
        self._note(path, spot)
        self._values.add(path)

    def _value(self, path: Path, key_place: Place, depth: int) -> None:
        if depth > MAX_DEPTH:
            refuse_depth(self._text.name)
        if self._take("["):
            self._array(path, key_place, depth)
        elif self._take("{"):
            self._inline_table(path, depth)
        else:
            matches = (pattern.match(self._all, self.at) for pattern in _SCALARS)
            match = next((match for match in matches if match), None)
            if match is None:
                raise _NotToml
            self.at = match.end()

    def _array(self, path: Path, key_place: Place, depth: int) -> None:
        index = 0
        self._skip(_BLANK)
        while not self._take("]"):
            start = self.at
            self._value((*path, index), key_place, depth + 1)
            place = self._text.place(start, self.at)
            self._note((*path, index), Spot(place, place, self._all[start : self.at]))
            index += 1
            self._skip(_BLANK)
            if not self._take(",") and self._all[self.at : self.at + 1] != "]":
                raise _NotToml
            self._skip(_BLANK)

    def _inline_table(self, path: Path, depth: int) -> None:
        self._skip(_SPACE)
        while not self._take("}"):
            self._assignment(path, depth)
            self._skip(_SPACE)
            if not self._take(",") and self._all[self.at : self.at + 1] != "}":
                raise _NotToml
            self._skip(_SPACE)

    def _key(self) -> tuple[list[str], Place]:
        parts: list[str] = []
        self._skip(_SPACE)
        start = end = self.at
        while True:
            parts.append(self._key_part())
            end = self.at
            if len(parts) > MAX_DEPTH:
                refuse_depth(self._text.name)
            self._skip(_SPACE)
            if not self._take("."):
                return parts, self._text.place(start, end)
            self._skip(_SPACE)

    def _key_part(self) -> str:
        if bare := _BARE.match(self._all, self.at):
            self.at = bare.end()
            return bare[0]
        quoted = _STRING.match(self._all, self.at)
        if quoted is None:
            raise _NotToml
        self.at = quoted.end()
        return _unquote(quoted[0])

    def _note(self, path: Path, spot: Spot, *, implied: bool = False) -> None:
        if len(path) >= MAX_DEPTH:
            refuse_depth(self._text.name)
        first = self.spots.setdefault(path, spot)
        if len(self.spots) >= MAX_NODES:
            refuse_size(self._text.name)
        if first is not spot and not implied:
            self.duplicate = self.duplicate or (path, first, spot)

    def _take(self, token: str) -> bool:
        if not self._all.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise _NotToml

    def _skip(self, pattern: re.Pattern[str]) -> None:
        if match := pattern.match(self._all, self.at):
            self.at = match.end()


def _unquote(written: str) -> str:
    import tomllib

    try:
        return next(iter(tomllib.loads(f"{written} = 0")))
    except tomllib.TOMLDecodeError:
        raise _NotToml from None
