"""Explains why a query finds no run: which tests fail for all runs, and what the runs have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochal.errors import suggest
from epochal.records.query.compile import Compiler
from epochal.records.query.grammar import parse_query
from epochal.records.query.names import AGE, ConfigKey, Fact, NameResolver
from epochal.records.query.result_table import read_time
from epochal.records.query.tree import BoolOp, Compare
from epochal.text.formatting import format_seconds, format_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from epochal.records.index import Index
    from epochal.records.query.ask import Question
    from epochal.records.query.names import Target
    from epochal.records.query.tree import Query

_MISSING = "it is missing everywhere"
_SHOWN = 4
_MOST_VALUES = 500


def explain_no_match(index: Index, question: Question) -> list[str]:
    """A line for each test that is false for all runs; tests under ``not`` are left out."""
    if not question.where.strip():
        return []
    names, query = NameResolver(index.fetch), question.text("where")
    compiler, lines = Compiler(names, query), []
    for test in _tests(parse_query(query)):
        made = compiler.condition(test)
        if index.fetch(f"SELECT 1 FROM runs WHERE {made.text} LIMIT 1", made.values):
            continue
        typed = query.text[test.name.token.start : test.values[-1].end]
        typed += ")" * (test.operator in ("in", "not in"))
        target, asked = names.resolve(test.name, query), [value.text for value in test.values]
        actual = _describe_actual(index, target, asked)
        lines.append(f"no run has {typed}{f': {actual}' if actual else ''}")
    return lines


def _tests(query: Query) -> Iterator[Compare]:
    if isinstance(query, Compare):
        yield query
    elif isinstance(query, BoolOp):
        for part in query.parts:
            yield from _tests(part)


def _describe_actual(index: Index, target: Target, asked: Sequence[str]) -> str:
    if isinstance(target, ConfigKey):
        question = "SELECT DISTINCT text FROM params WHERE key = ? AND text IS NOT NULL"
        rows = index.fetch(f"{question} ORDER BY number, text LIMIT ?", (target.key, _MOST_VALUES))
        return _describe([text for (text,) in rows], asked)
    if isinstance(target, Fact):
        return _describe_fact(index, target, asked)
    extremes = f"min({target.column}), max({target.column})"
    [ends] = index.fetch(f"SELECT {extremes} FROM metrics WHERE name = ?", (target.name,))
    return _describe_range(*map(format_value, ends)) if None not in ends else "it is nan"


def _describe_fact(index: Index, fact: Fact, asked: Sequence[str]) -> str:
    if fact.column == AGE:
        return ""
    if fact.kind == "text":
        chosen = f"SELECT DISTINCT {fact.column} FROM runs WHERE {fact.column} != ''"
        rows = index.fetch(f"{chosen} ORDER BY 1 LIMIT ?", (_MOST_VALUES,))
        return _describe([text for (text,) in rows], asked)
    known = f"NULLIF({fact.column}, '')"
    [ends] = index.fetch(f"SELECT min({known}), max({known}) FROM runs", ())
    if None in ends:
        return _MISSING
    kinds: dict[str, Callable[[Any], str]] = {"length": format_seconds, "time": _format_moment}
    return _describe_range(*map(kinds.get(fact.kind, format_value), ends))


def _describe(known: Sequence[str], asked: Sequence[str]) -> str:
    """The most similar value, or the first few."""
    for text in asked:
        meant = suggest(text, known)
        if meant.startswith("did you mean"):
            return meant
    shown = [text.partition("\n")[0] for text in known[:_SHOWN]]
    more = ", ..." * (len(known) > _SHOWN)
    return f"it is {', '.join(shown)}{more}" if known else _MISSING


def _describe_range(first: str, last: str) -> str:
    return f"it is {first}" if first == last else f"it is {first} to {last}"


def _format_moment(text: str) -> str:
    moment = read_time(text)
    return text if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M}"
