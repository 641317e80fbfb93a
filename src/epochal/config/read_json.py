"""Strict JSON into a tree with places: checked by ``json``, read by the YAML reader."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

from epochal.config.problems import refuse_depth
from epochal.config.read_yaml import read_events
from epochal.config.scalar import shorten
from epochal.config.yaml_errors import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.config.node import Node
    from epochal.config.problems import Findings
    from epochal.config.source_file import SourceText

_Token = re.Match[str]
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^ \t\n,:\[\]{}"]+')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_LONG_KEY = re.compile(r'"(?:[^"\\]|\\.){900,}"\s*:')  # the YAML parser takes 1,024
_CLOSING = {"{": "}", "[": "]"}
_COMMENT_HINT = "remove it, or write the config as YAML or TOML"
_COMMA = ("a comma before the end", "JSON allows no trailing comma")
_MESSAGES = {
    "Unterminated": ("this quote is never closed", 'add a "'),
    "Invalid": (
        "bad character or escape in a text",
        r"write \n for a new line and \\ for a backslash",
    ),
    "Extra data": ("text after the end of the document", ""),
    "trailing comma": _COMMA,
    "property name": ("a key must be in double quotes", 'write "key": value'),
    "':'": ("expected ':' after a key", 'write "key": value'),
    "value": ("a value is missing here", ""),
}
"""Parts of the messages of ``json``: what is wrong, and what to write instead."""

_WORD_HINTS = {
    "NaN": 'write "$nan"',
    "Infinity": 'write "$inf"',
    "-Infinity": 'write "-$inf"',
    "None": "write null",
    "True": "write true",
    "False": "write false",
}


def read_json(text: SourceText, findings: Findings, *, layer: str) -> Node | None:
    """The tree of a JSON document, or nothing after a syntax error was reported.

    Raises:
        ConfigError: The document is too big or too deep to be read at all.
    """

    def refuse_constant(word: str) -> NoReturn:
        tokens = _TOKEN.finditer(text.text)
        at = next(token.start() for token in tokens if token[0].startswith(word))
        raise json.JSONDecodeError("Expecting value", text.text, at)

    try:
        # Numbers stay text: only the syntax counts here, and int() is slow for many digits.
        json.loads(text.text, parse_int=str, parse_float=str, parse_constant=refuse_constant)
    except json.JSONDecodeError as error:
        mistake = _explain(error, text)
        findings.report_file(text.name, mistake.what, mistake.place, mistake.hint)
        return None
    except RecursionError:
        refuse_depth(text.name)
    if long := _LONG_KEY.search(text.text):
        place = text.place(long.start())
        findings.report_file(text.name, "a key has more than 900 characters", place)
        return None
    return read_events(_events(text.text), text, findings, layer=layer)


def _events(text: str) -> Iterator[Any]:
    """The events of the YAML parser, with every string decoded by ``json``."""
    from ruamel.yaml import YAML

    # YAML has other escapes, line breaks and unprintable characters: it sees blank strings.
    blank = _STRING.sub(lambda string: f'"{" " * (len(string[0]) - 2)}"', text)
    for event in YAML(typ="safe", pure=True).parse(blank.replace("\t", " ").replace("\n", " ")):
        if getattr(event, "style", None) == '"':
            event.value = json.loads(text[event.start_mark.index : event.end_mark.index])
        yield event


def _explain(error: json.JSONDecodeError, text: SourceText) -> Mistake:
    """The mistake behind an error of ``json``."""
    place = text.place(error.pos)
    known = next((message for part, message in _MESSAGES.items() if part in error.msg), None)
    if known is not None and error.msg.startswith(("Unterminated", "Invalid")):
        return Mistake(known[0], place, known[1])
    opened, before, here = _surroundings(text.text, error.pos)
    closing = _CLOSING[opened[0]] if opened else ""
    what, hint = known or (f"expected ',' or {closing!r} here", "")
    if here is None:
        if opened is not None:
            what, hint = f"this {opened[0]!r} is never closed", f"add a {closing}"
            place = text.place(opened.start())
        return Mistake(what, place, hint)
    if here[0].startswith(("//", "/*", "#")):
        return Mistake("JSON has no comments", place, _COMMENT_HINT)
    is_value = error.msg == "Expecting value" and here[0] not in {"}", "]", ",", ":"}
    if is_value or here.start() < error.pos:  # such as 01, which starts with the value 0
        return _explain_word(here, text)
    if before and before[0] == "," and here[0] == closing:
        (what, hint), place = _COMMA, text.place(before.start())
    return Mistake(what, place, hint)


def _surroundings(text: str, at: int) -> tuple[_Token | None, _Token | None, _Token | None]:
    """The innermost open bracket, the token that ends before ``at``, and the one after it."""
    opened: list[_Token] = []
    before = None
    for token in _TOKEN.finditer(text):
        if token.end() > at:
            return opened[-1] if opened else None, before, token
        if token[0] in _CLOSING:
            opened.append(token)
        elif token[0] in {"}", "]"}:
            opened.pop()
        before = token
    return opened[-1] if opened else None, before, None


def _explain_word(word: _Token, text: SourceText) -> Mistake:
    hint = _WORD_HINTS.get(word[0], "put a text in double quotes")
    if word[0].strip("+-.0123456789") == "":
        hint = "write a number like 0.5 or 12"
    return Mistake(f"{shorten(word[0])!r} is not a JSON value", text.place(*word.span()), hint)
