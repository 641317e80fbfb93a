"""The known secrets of this process, and patterns that find them quoted, escaped and encoded."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, final

from epochal.config.scalar import REDACTED
from epochal.records.secrets.secret_names import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_UNIT = re.compile(r"\s+|\\+|.", re.DOTALL)
_CORE = re.compile(r"[A-Za-z0-9]+")

_PERCENT = "%(?:25){0,3}"
_BLANKS = r"[nrtv \s]|x0[9-d]|u000[9-d]|x85|u00(?:85|a0)|u202[89]|xa0|01[1-5]|[NLP_]"
_BLANK = rf"(?:\s|\+|{_PERCENT}(?:20|0[9-D])|\\++(?:{_BLANKS}))"
_SIGN = r"(?:[-+#]\s*+)?"
"""The sign before a line in a diff or comment: YAML may fold a text into several lines."""

_LETTERS = {"\0": "0", "\a": "a", "\b": "b", "\x1b": "e"}
_DOUBLED = {"'": r"'(?:\\*+\"'\\*+\"|\\++'|)'"}

_ANY_SLASHES = r"\\++"
_MORE_SLASHES = r"\\*+"
_FIRST_SLASHES = r"\\{1,8}"
"""Limited at the start of a match: a long line of slashes would take quadratic time."""


@final
@dataclass(frozen=True)
class SecretPattern:
    """Finds one text in every way of quoting it."""

    core: str
    """The longest part that is never escaped, for a fast check; may be empty."""

    source: str
    """The regular expression, compiled when a text contains ``core``."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The compiled expression."""
        return re.compile(self.source)

    def replace(self, text: str, mark: str) -> str:
        """``text`` with ``mark`` in place of the secret."""
        return self.pattern.sub(mark, text) if self.core in text else text

    def is_in(self, text: str) -> bool:
        """Whether ``text`` contains the secret."""
        return self.core in text and self.pattern.search(text) is not None


def compile_secret_pattern(text: str, *, is_word: bool = False) -> SecretPattern:
    """The pattern for a text that is not blank; a word matches only between other characters."""
    core = max(_CORE.findall(text), key=len, default="")
    parts, slash = [], _FIRST_SLASHES
    for unit in _UNIT.findall(text.strip()):
        parts.append(_compile_unit(unit, slash))
        # A slash of the text itself also matches those that escape the next character.
        slash = _MORE_SLASHES if unit[0] == "\\" else _ANY_SLASHES
    pattern = "".join(parts)
    if is_word:
        pattern = rf"(?<![^\W_]){pattern}(?![^\W_])"
    return SecretPattern(core, pattern)


def _compile_unit(unit: str, slash: str) -> str:
    char = unit[0]
    if (char.isascii() and char.isalnum()) or char in "_-.~":
        return re.escape(char)
    if char.isspace():
        first = f"(?:{_BLANK}|{_BLANKS})" if slash == _MORE_SLASHES else _BLANK
        return f"{first}{_BLANK}*{_SIGN}"
    if char == "\\":
        # An escaped backslash ends with a slash or with its code.
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


_SHORTEST = 8
"""A shorter value of an environment variable may be an ordinary word."""

_SHORTEST_GIVEN = 6
"""The same for a value that a config has under a secret name."""

_WORDS = frozenset(("password", "default", "required", "optional", "changeme", "disabled"))

_CASED = re.compile(r"[^A-Za-z]|[a-z].*[A-Z]|[A-Z].*[a-z]|.{16}", re.DOTALL)
_URL_SAFE = str.maketrans("+/", "-_")

_hidden: tuple[frozenset[str], ...] = ()


@contextmanager
def hiding_secrets(values: Iterable[str]) -> Iterator[None]:
    """Redact ``values`` in all texts in a block, in every thread."""
    global _hidden  # like the handlers of logging: every writer must see it
    ours = frozenset(value for value in values if _is_long(value, _SHORTEST_GIVEN))
    _hidden = (*_hidden, ours)
    try:
        yield
    finally:
        others = list(_hidden)
        others.remove(ours)
        _hidden = tuple(others)


def get_secret_patterns() -> tuple[SecretPattern, ...]:
    """The patterns of all known secrets, longest first."""
    return _compile_patterns(get_secret_values())


def get_secret_values() -> frozenset[str]:
    """All known secrets: from the environment and from ``hiding_secrets``."""
    return _from_environment(tuple(os.environ.items())).union(*_hidden)


@lru_cache(maxsize=4)
def _from_environment(items: tuple[tuple[str, str], ...]) -> frozenset[str]:
    return frozenset(
        value
        for name, value in items
        if is_secret_name(name) and _is_long(value, _SHORTEST) and not _is_path(value)
    )


def _is_long(value: str, shortest: int) -> bool:
    word = value.strip().lower()
    return len(word) >= shortest and word not in _WORDS and word not in REDACTED


def _is_path(value: str) -> bool:
    """Whether a value names a file, or is part of the current path, which other paths repeat."""
    try:
        return value in f"{Path.cwd()}\n{Path.home()}" or Path(value).exists()
    except (OSError, ValueError, RuntimeError):
        return False


def _other_forms(secret: str) -> Iterator[str]:
    """The secret in capitals and small letters, in base64 and in hexadecimal digits."""
    if len(secret) < _SHORTEST:
        return
    if _CASED.search(secret):  # a word in capitals may be anything
        yield from (secret.upper(), secret.lower())
    data = secret.encode("utf-8", "surrogatepass")
    yield from (data.hex(), data.hex().upper())
    for before in range(3):  # base64 differs with the place in its text, as in `user:password`
        # Only whole characters: the first and the last ones depend on the neighbours.
        first, last = (before * 8 + 5) // 6, (before + len(data)) * 8 // 6
        form = b64encode(bytes(before) + data).decode()[first:last]
        yield from {form, form.translate(_URL_SAFE)}


@lru_cache(maxsize=16)
def _compile_patterns(values: frozenset[str]) -> tuple[SecretPattern, ...]:
    # A diff or a log puts a prefix before each line, so each line is a secret, too.
    lines = (line for value in values for line in value.splitlines() if _is_long(line, _SHORTEST))
    texts = {text.strip() for text in (*values, *lines)}
    texts |= {form for value in values for form in _other_forms(value.strip())}
    longest_first = sorted(texts, key=lambda text: (-len(text), text))
    return tuple(  # a short text may be part of another word
        compile_secret_pattern(text, is_word=len(text) < _SHORTEST and text.isalnum())
        for text in longest_first
    )
