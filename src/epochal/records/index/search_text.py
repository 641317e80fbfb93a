"""Words of a run that can be searched for, and questions as the search understands them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from epochal.records.folder.record import RunRecord
    from epochal.records.index.params import Param

_UNSPACED = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")
"""Kana and Chinese characters, which stand without spaces between words: each is a word."""

_MAX_VALUE = 1000
_README_TEMPLATE = re.compile(
    r"^---\n+`metrics\.bin` holds all points.*?(\n```python\n.*?\n```|\Z)|^_Write here .*_$",
    re.DOTALL | re.MULTILINE,
)


class SearchText(NamedTuple):
    """What can be found of one run, by where it stands."""

    about: str
    """What people wrote: README, tag, project, variant, and the run's name."""

    given: str
    """Keys and values that somebody set."""

    defaults: str
    """Keys and values that were left as they are."""


def build_search_text(record: RunRecord, params: Iterable[Param]) -> SearchText:
    """The words of one run."""
    summary = record.summary
    names = (summary.id, summary.project, summary.tag, str(record.run.get("variant") or ""))
    about = "\n".join((*names, strip_readme_template(record.readme)))
    lines: tuple[list[str], list[str]] = ([], [])
    for one in params:
        lines[one.is_default].append(f"{one.key} {(one.text or '')[:_MAX_VALUE]}")
    return SearchText(*(_separate_characters(text) for text in (about, *map("\n".join, lines))))


def strip_readme_template(readme: str) -> str:
    """What people wrote into a README, without what every run's page says."""
    return _README_TEMPLATE.sub("", readme).strip()


def to_fts_query(words: Sequence[str]) -> str:
    """A question to the search: runs that have all of these, or words that begin with them."""
    tokens = [_separate_characters(word.replace('"', " ")) for word in words]
    return " AND ".join(f'"{token}"*' for token in tokens if any(map(str.isalnum, token)))


def _separate_characters(text: str) -> str:
    # A text from a file may hold halves of characters, which the database refuses.
    return _UNSPACED.sub(r" \1 ", text).encode("utf-8", "replace").decode()
