"""TOML into a tree with places: values from ``tomllib``, positions from a scan."""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from epochal.config import scalar
from epochal.config.node import Node, Plain
from epochal.config.toml_places import Path, Spot, TomlPlaces, scan_toml
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
    """The tree of a TOML document, or nothing after a syntax error was reported.

    Raises:
        ConfigError: The document is too big or too deep to be read at all.
    """
    import tomllib

    places = scan_toml(text)
    try:
        plain = tomllib.loads(text.text)
    except (ValueError, RecursionError) as error:  # int() raises its own for endless digits
        _explain(error, text, places, findings)
        return None
    return _Builder(text, findings, places, layer).build(plain, ())


@final
class _Builder:
    def __init__(
        self, text: SourceText, findings: Findings, places: TomlPlaces, layer: str
    ) -> None:
        self._nowhere = Spot(Place(text.name), Place(text.name))
        self._findings = findings
        self._spots = places.spots
        self._layer = layer

    def build(self, value: Plain, path: Path) -> Node:
        """The node of a parsed value."""
        spot = self._spots.get(path, self._nowhere)
        if isinstance(value, dict):
            value = MappingProxyType({k: self.build(v, (*path, k)) for k, v in value.items()})
        elif isinstance(value, list):
            value = tuple(self.build(child, (*path, i)) for i, child in enumerate(value))
        elif isinstance(value, bool | str):
            pass
        elif isinstance(value, int | float):
            value = self._number(value, spot, path)
        else:  # a date or time: the same text that YAML and JSON would give
            value = spot.written or str(value)
        return Node(value, spot.place, spot.key_place, self._layer)

    def _number(self, value: float, spot: Spot, path: Path) -> float:
        what = ""
        if isinstance(value, int):
            try:
                return scalar.check_int(value)
            except ValueError as error:
                what = str(error)
        elif math.isinf(value) and not _SIGNED_INF.fullmatch(spot.written or "inf"):
            what = "number is too big for a float"
        if what:
            key = ".".join(map(str, path))
            self._findings.report(key, f"{what}, got {scalar.shorten(spot.written)}", spot.place)
            self._findings.broken.add(key)
            return 0
        return value


def _explain(error: Exception, text: SourceText, places: TomlPlaces, findings: Findings) -> None:
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
        at = digits.start() if digits else places.reached
        findings.report_file(text.name, what, text.place(at), "")
        return
    at = len(text.text.rstrip())
    if position[1]:
        at = text.offset(int(position[1]), int(position[2]))
    what, place = message[: position.start()], text.place(at)
    if _OPEN_QUOTE.match(what):
        what, place = "this quote is never closed", text.place(places.reached)
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
