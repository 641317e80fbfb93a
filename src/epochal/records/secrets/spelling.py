"""How a text looks where it was quoted: in JSON, YAML, Python, a shell, an address or a diff."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import final

_UNIT = re.compile(r"\s+|\\+|.", re.DOTALL)
_CORE = re.compile(r"[A-Za-z0-9]+")

_PERCENT = "%(?:25){0,3}"
_BLANKS = r"[nrtv \s]|x0[9-d]|u000[9-d]|x85|u00(?:85|a0)|u202[89]|xa0|01[1-5]|[NLP_]"
_BLANK = rf"(?:\s|\+|{_PERCENT}(?:20|0[9-D])|\\++(?:{_BLANKS}))"
_SIGN = r"(?:[-+#]\s*+)?"
"""A config may fold a text into several lines, and a diff puts a sign before each of them."""

_LETTERS = {"\0": "0", "\a": "a", "\b": "b", "\x1b": "e"}
_DOUBLED = {"'": r"'(?:\\*+\"'\\*+\"|\\++'|)'"}

_ANY_SLASHES = r"\\++"
_MORE_SLASHES = r"\\*+"
_FIRST_SLASHES = r"\\{1,8}"
"""Where a match begins their number is limited: a line of nothing else would take its square."""


@final
@dataclass(frozen=True)
class Spelled:
    """What finds one text in each of its spellings."""

    core: str
    """The part of it that every spelling has, to look for it fast; may be empty."""

    pattern: re.Pattern[str]

    def replace(self, text: str, mark: str) -> str:
        """``text`` with ``mark`` wherever this one stood."""
        return self.pattern.sub(mark, text) if self.core in text else text

    def is_in(self, text: str) -> bool:
        """Whether it stands in ``text``."""
        return self.core in text and self.pattern.search(text) is not None


def spell(text: str, *, is_word: bool = False) -> Spelled:
    """The spellings of a text that is neither empty nor blank.

    Args:
        text: As it is.
        is_word: Whether it counts only where no letter and no digit stands beside it.
    """
    core = max(_CORE.findall(text), key=len, default="")
    parts, slash = [], _FIRST_SLASHES
    for unit in _UNIT.findall(text.strip()):
        parts.append(_spell_unit(unit, slash))
        # The slashes of the text itself take those that escape what follows, too.
        slash = _MORE_SLASHES if unit[0] == "\\" else _ANY_SLASHES
    pattern = "".join(parts)
    if is_word:
        pattern = rf"(?<![^\W_]){pattern}(?![^\W_])"
    return Spelled(core, re.compile(pattern))


def _spell_unit(unit: str, slash: str) -> str:
    char = unit[0]
    if (char.isascii() and char.isalnum()) or char in "_-.~":
        return re.escape(char)
    if char.isspace():
        first = f"(?:{_BLANK}|{_BLANKS})" if slash == _MORE_SLASHES else _BLANK
        return f"{first}{_BLANK}*{_SIGN}"
    if char == "\\":
        # An escape of it ends with a slash or with its number.
        return rf"(?:{slash}(?:(?i:x5c|u005c)|134)?|(?:{_PERCENT}5[cC])++)(?:\r?\n[ \t]*+\\*+)?"
    escaped = "|".join(_escapes(char, slash))
    doubled = f"{_DOUBLED[char]}|" if char in _DOUBLED else ""
    return rf"(?:{doubled}(?:{slash})?{re.escape(char)}|{escaped})(?:\\\r?\n[ \t]*+)?"


def _escapes(char: str, slash: str) -> list[str]:
    code, data = ord(char), char.encode("utf-8", "surrogatepass")
    units = [f"{code:04x}"] if code < 0x10000 else _surrogates(code)
    between = _ANY_SLASHES
    spellings = [
        between.join(f"u{unit}" for unit in units),
        f"U{code:08x}",
        between.join(f"x{byte:02x}" for byte in data),
        *([f"x{code:02x}"] if code < 0x100 else []),
    ]
    exact = [between.join(f"{byte:03o}" for byte in data)]
    exact += [_LETTERS[char]] if char in _LETTERS else []
    percent = "".join(f"{_PERCENT}{byte:02x}" for byte in data)
    return [f"{slash}(?:(?i:{'|'.join(spellings)})|{'|'.join(exact)})", f"(?i:{percent})"]


def _surrogates(code: int) -> list[str]:
    high, low = divmod(code - 0x10000, 0x400)
    return [f"{0xD800 + high:04x}", f"{0xDC00 + low:04x}"]
