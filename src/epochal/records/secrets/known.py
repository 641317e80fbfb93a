"""The secrets that this process knows: in its environment, and in the config that it runs."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.config.scalar import REDACTED
from epochal.records.secrets.names import is_secret_name
from epochal.records.secrets.spelling import Spelled, spell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SHORTEST = 8
"""Characters below which a value of the environment may well be an ordinary word."""

_SHORTEST_GIVEN = 6
"""The same for a value that a config gave under the name of a secret."""

_WORDS = frozenset(("password", "default", "required", "optional", "changeme", "disabled"))

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


def known_secrets() -> tuple[Spelled, ...]:
    """What finds each known secret in a text, however it is quoted there; the longest first."""
    return _spell(known_values())


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
    word = value.strip().lower()
    return len(word) >= shortest and word not in _WORDS and word not in REDACTED


def _is_path(value: str) -> bool:
    """Whether a value names a file, or is part of where we are, which every path repeats."""
    try:
        return value in f"{Path.cwd()}\n{Path.home()}" or Path(value).exists()
    except (OSError, ValueError, RuntimeError):
        return False


@lru_cache(maxsize=16)
def _spell(values: frozenset[str]) -> tuple[Spelled, ...]:
    # A diff or a log puts something before each line of a text, so that a line alone counts, too.
    lines = (line for value in values for line in value.splitlines() if _is_long(line, _SHORTEST))
    texts = {text.strip() for text in (*values, *lines)}
    longest_first = sorted(texts, key=lambda text: (-len(text), text))
    return tuple(spell(text, is_word=_is_word(text)) for text in longest_first)


def _is_word(text: str) -> bool:
    """Whether a text is so short that it may well be a part of something else."""
    return len(text) < _SHORTEST and text.isalnum()
