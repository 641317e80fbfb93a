"""The secrets that this process knows: in its environment, and in the config that it runs."""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

from epochal.records.secrets.names import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SHORTEST = 8
"""Characters below which a value of the environment may well be an ordinary word."""

_SHORTEST_GIVEN = 6
"""The same for a value that a config gave under the name of a secret."""

_WORDS = frozenset(("password", "default", "required", "optional", "changeme", "disabled"))

_BETWEEN_WORDS = r"\s+(?:[-+#]\s*)?"
"""A config may fold a text into several lines, and a diff puts a sign before each of them."""

_hidden: tuple[frozenset[str], ...] = ()


@contextmanager
def hiding(values: Iterable[str]) -> Iterator[None]:
    """Take ``values`` for secrets wherever they appear as text, in every thread."""
    global _hidden  # like the handlers of logging: whatever writes must see it
    ours = frozenset(value for value in values if _is_long(value, _SHORTEST_GIVEN))
    _hidden = (*_hidden, ours)
    try:
        yield
    finally:
        kept = list(_hidden)
        kept.remove(ours)
        _hidden = tuple(kept)


def known_pattern() -> re.Pattern[str] | None:
    """What finds any known secret in a text, also as URLs and JSON spell it."""
    values = _from_environment(tuple(os.environ.items()))
    return _compile(frozenset(values).union(*_hidden))


def known_values() -> frozenset[str]:
    """The values themselves."""
    return _from_environment(tuple(os.environ.items())).union(*_hidden)


@lru_cache(maxsize=4)
def _from_environment(items: tuple[tuple[str, str], ...]) -> frozenset[str]:
    return frozenset(
        value
        for name, value in items
        if is_secret_name(name) and _is_long(value, _SHORTEST) and not _is_path(value)
    )


def _is_long(value: str, shortest: int) -> bool:
    return len(value.strip()) >= shortest and value.lower() not in _WORDS


def _is_path(value: str) -> bool:
    """Whether a value names a file, or is part of where we are, which every path repeats."""
    try:
        return value in f"{Path.cwd()}\n{Path.home()}" or Path(value).exists()
    except (OSError, ValueError, RuntimeError):
        return False


@lru_cache(maxsize=16)
def _compile(values: frozenset[str]) -> re.Pattern[str] | None:
    spellings = {text for value in values for text in _spellings(value)}
    if not spellings:
        return None
    longest_first = sorted(spellings, key=lambda text: (-len(text), text))
    return re.compile("|".join(_bounded(text) for text in longest_first))


def _spellings(value: str) -> Iterator[str]:
    yield from (value, value.strip(), quote(value, safe=""), quote_plus(value))
    yield value.replace("'", "''")  # as YAML quotes
    yield from (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    yield repr(value)[1:-1]
    for line in value.splitlines():  # a diff or a log puts something before each
        if len(line.strip()) >= _SHORTEST:
            yield line.strip()


def _bounded(text: str) -> str:
    """A short word counts as a whole word only."""
    if len(text) < _SHORTEST and text.isalnum():
        return rf"(?<![^\W_]){re.escape(text)}(?![^\W_])"
    return _BETWEEN_WORDS.join(map(re.escape, text.split())) or re.escape(text)
