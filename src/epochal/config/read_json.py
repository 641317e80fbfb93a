"""Strict JSON into a tree with places."""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from epochal.config import scalar
from epochal.config.findings import Findings, join
from epochal.config.limits import MAX_DEPTH, MAX_NODES, refuse_depth, refuse_size
from epochal.config.node import Node, Scalar

if TYPE_CHECKING:
    from epochal.config.source import Text

_DECODER = JSONDecoder()
_SPACE = re.compile(r"[ \t\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?(?![\w.+-])")
_WORD = re.compile(r"[^\s,:\[\]{}\"]+")
_WORDS: dict[str, Scalar] = {"true": True, "false": False, "null": None}
_WORD_HINTS = {
    "NaN": 'write "$nan"',
    "Infinity": 'write "$inf"',
    "-Infinity": 'write "-$inf"',
    "None": "write null",
    "True": "write true",
    "False": "write false",
}


class _Mistake(Exception):  # noqa: N818  never leaves this module
    """A syntax error at one spot."""

    def __init__(self, what: str, start: int, end: int | None = None, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.start = start
        self.end = end
        self.hint = hint


def read_json(text: Text, findings: Findings, *, layer: str) -> Node | None:
    """The tree of a JSON document, or nothing after a syntax error was reported.

    Raises:
        ConfigError: The document is too big or too deep to be read at all.
    """
    reader = _Reader(text, findings, layer)
    try:
        return reader.read_document()
    except _Mistake as mistake:
        place = text.place(mistake.start, mistake.end)
        findings.report_file(text.name, mistake.what, place, mistake.hint)
        return None


@final
class _Reader:
    def __init__(self, text: Text, findings: Findings, layer: str) -> None:
        self._text = text
        self._all = text.text
        self._findings = findings
        self._layer = layer
        self._at = 0
        self._count = 0

    def read_document(self) -> Node:
        """The one value that the text consists of."""
        node = self._value("", 1)
        if self._peek():
            raise _Mistake("text after the end of the document", self._at)
        return node

    def _peek(self) -> str:
        space = _SPACE.match(self._all, self._at)
        self._at = space.end() if space else self._at
        rest = self._all[self._at : self._at + 2]
        if rest in {"//", "/*"} or rest[:1] == "#":
            hint = "remove it, or write the config as YAML or TOML"
            raise _Mistake("JSON has no comments", self._at, hint=hint)
        return rest[:1]

    def _value(self, path: str, depth: int) -> Node:
        self._count += 1
        if self._count > MAX_NODES:
            refuse_size(self._text.name)
        if depth > MAX_DEPTH:
            refuse_depth(self._text.name)
        char, start = self._peek(), self._at
        value: Scalar | tuple[Node, ...] | MappingProxyType[str, Node]
        if char == "{":
            value = MappingProxyType(self._entries(path, depth))
        elif char == "[":
            value = self._elements(path, depth)
        elif char == '"':
            value = self._string(path)
        else:
            value = self._word(path)
        return Node(value, self._text.place(start, self._at), layer=self._layer)

    def _entries(self, path: str, depth: int) -> dict[str, Node]:
        start, entries = self._at, dict[str, Node]()
        self._at += 1
        if self._peek() == "}":
            self._at += 1
            return entries
        while True:
            if self._peek() != '"':
                raise self._bad_key(start)
            key_start = self._at
            key = self._string(path)
            place = self._text.place(key_start, self._at)
            if self._peek() != ":":
                raise _Mistake("expected ':' after a key", self._at, hint='write "key": value')
            self._at += 1
            below = join(path, key)
            child = self._value(below, depth + 1)
            if first := entries.get(key):
                hint = f"first set in line {first.key_place.line}; keep one of the two"
                self._findings.report(below, f"duplicate key {key!r}", place, hint)
            else:
                entries[key] = Node(child.value, child.place, place, self._layer)
            if not self._goes_on("}", start):
                return entries

    def _elements(self, path: str, depth: int) -> tuple[Node, ...]:
        start, elements = self._at, list[Node]()
        self._at += 1
        if self._peek() == "]":
            self._at += 1
            return ()
        while True:
            elements.append(self._value(join(path, str(len(elements))), depth + 1))
            if not self._goes_on("]", start):
                return tuple(elements)

    def _goes_on(self, closing: str, opened: int) -> bool:
        char, comma = self._peek(), self._at
        self._at += 1
        if char == closing:
            return False
        if not char:
            what = f"this {self._all[opened]!r} is never closed"
            raise _Mistake(what, opened, hint=f"add a {closing}")
        if char != ",":
            raise _Mistake(f"expected ',' or {closing!r} here", comma)
        if self._peek() == closing:
            raise _Mistake("a comma before the end", comma, hint="JSON wants no last comma")
        return True

    def _bad_key(self, opened: int) -> _Mistake:
        if not self._all[self._at : self._at + 1]:
            return _Mistake("this '{' is never closed", opened, hint="add a }")
        return _Mistake("a key must stand in double quotes", self._at, hint='write "key": value')

    def _string(self, path: str) -> str:
        start = self._at
        try:
            decoded, self._at = _DECODER.raw_decode(self._all, start)
        except JSONDecodeError as error:
            if "Unterminated" in error.msg:
                raise _Mistake("this quote is never closed", start, hint='add a "') from None
            hint = r"write \n for a new line and \\ for a backslash"
            raise _Mistake("bad character or escape in a text", error.pos, hint=hint) from None
        value = str(decoded)
        if scalar.has_surrogates(value):
            place = self._text.place(start, self._at)
            self._findings.report(path, "holds half of a surrogate pair", place)
            self._findings.broken.add(path)
            return ""
        return value

    def _word(self, path: str) -> Scalar:
        start = self._at
        if number := _NUMBER.match(self._all, start):
            self._at = number.end()
            return self._number(number, path)
        word = _WORD.match(self._all, start)
        if word is None:
            raise _Mistake("a value is missing here", start)
        self._at = word.end()
        if word[0] in _WORDS:
            return _WORDS[word[0]]
        hint = _WORD_HINTS.get(word[0], "put a text in double quotes")
        if word[0].strip("+-.0123456789") == "":
            hint = "write a number like 0.5 or 12"
        shown = word[0] if len(word[0]) <= 40 else f"{word[0][:37]}..."
        raise _Mistake(f"{shown!r} is no JSON value", start, word.end(), hint)

    def _number(self, number: re.Match[str], path: str) -> int | float:
        try:
            if number[1] or number[2]:
                return scalar.parse_float(number[0])
            return scalar.parse_int(number[0])
        except ValueError as error:
            shown = number[0] if len(number[0]) <= 40 else f"{number[0][:37]}..."
            place = self._text.place(number.start(), number.end())
            self._findings.report(path, f"{error}, got {shown}", place)
            self._findings.broken.add(path)
            return 0
