"""The searchable text of a run, and queries of the full-text search."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from epochal.records.folder.record import RunRecord
    from epochal.records.index.params import Param

_UNSPACED = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")
"""Kana and Chinese characters, which have no spaces between words: each is a word."""

_MAX_VALUE = 1000
_README_TEMPLATE = re.compile(
    r"^---\n+`metrics\.bin` holds all points.*?(\n```python\n.*?\n```|\Z)|^_Write here .*_$",
    re.DOTALL | re.MULTILINE,
)


class SearchText(NamedTuple):
    """The searchable text of one run by its source."""

    about: str
    """README, tag, project, variant, and id."""

    given: str
    """Keys and values that were set."""

    defaults: str
    """Keys and values of defaults."""


def build_search_text(record: RunRecord, params: Iterable[Param]) -> SearchText:
    """The searchable text of one run."""
    summary = record.summary
    names = (summary.id, summary.project, summary.tag, str(record.run.get("variant") or ""))
    about = "\n".join((*names, strip_readme_template(record.readme)))
    lines: tuple[list[str], list[str]] = ([], [])
    for one in params:
        lines[one.is_default].append(f"{one.key} {(one.text or '')[:_MAX_VALUE]}")
    return SearchText(*(_separate_characters(text) for text in (about, *map("\n".join, lines))))


def strip_readme_template(readme: str) -> str:
    """The text of a README without the template of every run."""
    return _README_TEMPLATE.sub("", readme).strip()


def to_fts_query(words: Sequence[str]) -> str:
    """An FTS5 query for runs that have words with all these prefixes."""
    tokens = [_separate_characters(word.replace('"', " ")) for word in words]
    return " AND ".join(f'"{token}"*' for token in tokens if any(map(str.isalnum, token)))


def _separate_characters(text: str) -> str:
    # SQLite refuses lone surrogates, which a damaged file may have.
    return _UNSPACED.sub(r" \1 ", text).encode("utf-8", "replace").decode()
