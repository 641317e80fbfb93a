"""Explanations of YAML syntax errors, with what to write instead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from epochal.config.source_file import SourceText
    from epochal.errors import Place

_NO_SPACE = re.compile(r"(\s*(?:- )?)([\w.$-]+):([^\s:/].*)")
_OPEN_KINDS = {"flow mapping": "{", "flow sequence": "["}


@final
@dataclass(frozen=True, slots=True)
class Mistake:
    """An explained syntax error."""

    what: str
    place: Place
    hint: str = ""


def explain(error: Exception, text: SourceText, *, start: int, reached: int) -> Mistake:
    """The mistake behind an error of the parser.

    The parser began at ``start`` and understood at least the text up to ``reached``.
    """
    problem = str(getattr(error, "problem", None) or "")
    context = str(getattr(error, "context", None) or "")
    at = _index(error, "problem_mark", start)
    opened = _index(error, "context_mark", start)
    if at is None:
        return _unreadable_character(error, text, start, reached)
    place = text.place(at)
    line = text.line(place.line)
    steps = (
        _tab(problem, line, text, place),
        _interpolation(line, text, place, context),
        _unclosed(problem, context, text, at, opened),
        _colon(problem, line, text, place),
        _layout(problem, context, text, place, opened),
    )
    return next((step for step in steps if step), Mistake(problem or "is not YAML", place))


def _index(error: Exception, name: str, start: int) -> int | None:
    mark = getattr(error, name, None)
    return None if mark is None else start + int(mark.index)


def _unreadable_character(error: Exception, text: SourceText, start: int, reached: int) -> Mistake:
    position = getattr(error, "position", None)
    if isinstance(position, int):
        char = text.text[start + position : start + position + 1]
        what = f"the character {char!r} is not allowed in a config"
        return Mistake(what, text.place(start + position), "delete it, or write it as an escape")
    hint = r"in double quotes a backslash starts an escape; write \\ for one backslash"
    return Mistake("an escape sequence is invalid", text.place(reached), hint)


def _tab(problem: str, line: str, text: SourceText, place: Place) -> Mistake | None:
    indent = line[: len(line) - len(line.lstrip())]
    if "'\\t'" not in problem and "\t" not in indent:
        return None
    column = indent.find("\t") + 1 or place.column
    where = text.place(text.offset(place.line, column))
    return Mistake(
        "a tab is used for indentation", where, "indent with spaces; YAML allows no tabs"
    )


def _interpolation(line: str, text: SourceText, place: Place, context: str) -> Mistake | None:
    found = line.rfind("${", 0, place.column + 1)
    if found < 0 or "flow" not in context:
        return None
    end = line.find("}", found)
    written = line[found : end + 1] if end > 0 else "${...}"
    where = text.offset(place.line, found + 1)
    hint = f'put quotes around it: "{written}"'
    what = "an interpolation inside { } or [ ] must be quoted"
    return Mistake(what, text.place(where, where + len(written)), hint)


def _unclosed(
    problem: str, context: str, text: SourceText, at: int, opened: int | None
) -> Mistake | None:
    if opened is None:
        return None
    if "quoted scalar" in context:
        return _bad_quote(problem, text, at, opened)
    kind = next((kind for kind in _OPEN_KINDS if kind in context), None)
    if kind is None or "expected" not in problem:
        return None
    opening = _OPEN_KINDS[kind]
    closing = "}" if opening == "{" else "]"
    if "stream end" in problem:
        return Mistake(f"this {opening!r} is never closed", text.place(opened), f"add a {closing}")
    where = text.place(opened)
    hint = f"the {opening} was opened in line {where.line}, column {where.column}"
    return Mistake(f"expected ',' or {closing!r} here", text.place(at), hint)


def _bad_quote(problem: str, text: SourceText, at: int, opened: int) -> Mistake:
    if "end of stream" in problem or "document separator" in problem:
        quote = text.text[opened : opened + 1]
        return Mistake("this quote is never closed", text.place(opened), f"add a {quote}")
    hint = "use single quotes for text with backslashes"
    return Mistake(f"bad escape in a quoted text: {problem}", text.place(at), hint)


def _colon(problem: str, line: str, text: SourceText, place: Place) -> Mistake | None:
    if "mapping values are not allowed" not in problem and "find expected ':'" not in problem:
        return None
    for number in (place.line, place.line - 1):
        if glued := _NO_SPACE.fullmatch(text.line(number)):
            where = text.offset(number, len(glued[1]) + 1)
            end = where + len(glued[2]) + len(glued[3]) + 1
            hint = f"put a space after the colon: `{glued[2]}: {glued[3].strip()}`"
            return Mistake("a colon needs a space after it", text.place(where, end), hint)
    if "find expected" in problem:
        return None
    if line[: place.column - 1].count(": "):
        hint = 'put quotes around a text with a colon: `key: "a: b"`'
        return Mistake("a second ': ' in one line", place, hint)
    return _misplaced(text, place)


def _misplaced(text: SourceText, place: Place) -> Mistake:
    bare = _line_without_colon(text, place.line)
    if bare:
        written = text.line(bare)
        start = text.offset(bare, _indent(written) + 1)
        where = text.place(start, start + len(written.strip()))
        return Mistake("a key without a colon", where, "write `key: value`")
    hint = "start it in the same column as the key above"
    return Mistake("a key is not allowed here", place, hint)


def _line_without_colon(text: SourceText, number: int) -> int:
    """The line before that begins a block without being a key, or 0."""
    indent = _indent(text.line(number))
    first = 0
    for above in range(number - 1, 0, -1):
        line = text.line(above)
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if _indent(line) < indent:
            # Otherwise this continues the text that its key began.
            return first if line.rstrip().endswith(":") else 0
        if _indent(line) > indent or ":" in line or line.startswith("%"):
            return 0
        first = above
    return first


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _layout(
    problem: str, context: str, text: SourceText, place: Place, opened: int | None
) -> Mistake | None:
    if "find expected ':'" in problem and opened is not None:
        return Mistake("a key without a colon", text.place(opened), "write `key: value`")
    if "<document start>" in problem and _line_without_colon(text, place.line):
        return _misplaced(text, place)
    if "expected <block end>" in problem and opened is not None:
        return _unexpected(context, text, place, text.place(opened))
    return _bad_value(problem, text, place)


def _bad_value(problem: str, text: SourceText, place: Place) -> Mistake | None:
    if "sequence entries are not allowed" in problem:
        hint = "put it on the next line, or write [a, b]"
        return Mistake("a list cannot start in the line of its key", place, hint)
    if "cannot start any token" in problem:
        char = text.text[text.offset(place.line, place.column)]
        return Mistake(f"a text cannot start with {char!r}", place, "put quotes around it")
    if "expected the node content" in problem:
        return Mistake("a value is missing here", place, "write one, or put quotes around the text")
    return None


def _unexpected(context: str, text: SourceText, place: Place, first: Place) -> Mistake:
    before = text.line(place.line)[: place.column - 1]
    char = text.text[text.offset(place.line, place.column)]
    if before.rstrip().endswith(("'", '"')):
        hint = "write 'it''s', or use the other kind of quotes outside"
        return Mistake("text after a closing quote", place, hint)
    if before.strip():
        return Mistake(f"unexpected {char!r}", place, "remove it, or put quotes around the value")
    if char == "-" and "mapping" in context:
        hint = "indent it below its key, which then has no other value"
        return Mistake("a list entry is not allowed here", place, hint)
    kind = "keys of one mapping" if "mapping" in context else "entries of a list"
    hint = f"{kind} must start in column {first.column}, as in line {first.line}"
    return Mistake("wrong indentation", place, hint)
