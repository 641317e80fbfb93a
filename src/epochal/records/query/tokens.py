"""The words, texts and signs of a query, each with its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["word", "text", "sign", "(", ")", ",", "end"]

_MAX_LENGTH = 10_000
_SHOWN = 100
_PARTS = re.compile(
    r"""(?P<space>\s+)
    |(?P<word>[\w./+@:%*\[\]-]+)
    |(?P<sign>[<>=!~&|]+)
    |(?P<mark>[(),])
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@final
@dataclass(frozen=True, slots=True)
class Token:
    """One part of a query."""

    kind: Kind
    text: str
    """What it says; a quoted text without its quotes."""

    start: int
    end: int


@final
@dataclass(frozen=True, slots=True)
class Written:
    """What somebody typed, and where, so that a mistake can be pointed at."""

    text: str
    key: str
    """The option or argument it was given to, such as ``--where``."""

    def mistake(self, where: Token, what: str, hint: str = "") -> ConfigError:
        """The error that points at ``where``."""
        start, line = where.start, "".join(c if c.isprintable() else " " for c in self.text)
        if len(line) > _SHOWN:
            cut = max(0, min(start - _SHOWN // 2, len(line) - _SHOWN))
            start, line = start - cut, line[cut : cut + _SHOWN]
        indent = len(line) - len(line.lstrip())
        carets = "^" * max(1, min(where.end - where.start, len(line) - start))
        shown = f"    {line.strip()}\n    {' ' * max(start - indent, 0)}{carets}"
        return ConfigError(Problem(self.key, f"{what}\n{shown}", hint=hint))


def split(written: Written) -> list[Token]:
    """The tokens of a query; the last one is its end.

    Raises:
        ConfigError: It is too long, or holds a character that means nothing here.
    """
    if len(written.text) > _MAX_LENGTH:
        what = f"longer than {_MAX_LENGTH} characters"
        raise ConfigError(Problem(written.key, what, hint="ask for less at a time"))
    tokens = list(_split(written))
    end = len(written.text.rstrip())
    return [*tokens, Token("end", "", end, end)]


def _split(written: Written) -> Iterator[Token]:
    text, start = written.text, 0
    while start < len(text):
        found = _PARTS.match(text, start)
        if found is None:
            raise _strange(written, start)
        part, shown, end = found.lastgroup, found[0], found.end()
        if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in shown):
            where = Token("text", shown, start, end)
            raise written.mistake(where, "holds a character that no text can have")
        if part == "mark":
            yield Token(shown, shown, start, end)  # type: ignore[arg-type]  # one of the three
        elif part == "text":
            yield Token("text", _ESCAPED.sub(r"\1", shown[1:-1]), start, end)
        elif part in ("word", "sign"):
            yield Token(part, shown, start, end)  # type: ignore[arg-type]  # one of the two
        start = end


def _strange(written: Written, start: int) -> ConfigError:
    char = written.text[start]
    where = Token("sign", char, start, start + 1)
    if char in "\"'":
        end = Token("sign", char, start, len(written.text))
        return written.mistake(end, "a quote is opened and not closed", hint=f"add {char}")
    hint = "put a text with such characters into quotes"
    return written.mistake(where, f"{char!r} means nothing here", hint=hint)
