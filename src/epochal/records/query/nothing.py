"""Why a question finds no run: tests that none of them meets, and what they have instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochal.errors import suggest
from epochal.records.figures import format_seconds, format_value
from epochal.records.query.compile import Compiler
from epochal.records.query.names import AGE, Fact, Names, Setting
from epochal.records.query.parser import parse_query
from epochal.records.query.sheet import read_time
from epochal.records.query.tree import Among, Compare, Joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from epochal.records.index import Index
    from epochal.records.query.ask import Question
    from epochal.records.query.names import Target
    from epochal.records.query.tree import Query

_MISSING = "it is missing everywhere"
_SHOWN = 4
_MOST_VALUES = 500


def explain_nothing(index: Index, question: Question) -> list[str]:
    """A line for each test of a question that no run at all meets; those under ``not`` aside."""
    if not question.where.strip():
        return []
    names, written = Names(index.fetch), question.written("where")
    compiler, lines = Compiler(names, written), []
    for test in _tests(parse_query(written)):
        made = compiler.condition(test)
        if index.fetch(f"SELECT 1 FROM runs WHERE {made.text} LIMIT 1", made.values):
            continue
        values = test.values if isinstance(test, Among) else (test.value,)
        typed = written.text[test.name.token.start : values[-1].token.end]
        typed += ")" * isinstance(test, Among)
        has = _has_instead(index, names.resolve(test.name, written), [one.text for one in values])
        lines.append(f"no run has {typed}{f': {has}' if has else ''}")
    return lines


def _tests(query: Query) -> Iterator[Compare | Among]:
    if isinstance(query, Compare | Among):
        yield query
    elif isinstance(query, Joined):
        for part in query.parts:
            yield from _tests(part)


def _has_instead(index: Index, target: Target, asked: Sequence[str]) -> str:
    if isinstance(target, Setting):
        question = "SELECT DISTINCT text FROM params WHERE key = ? AND text IS NOT NULL"
        rows = index.fetch(f"{question} ORDER BY number, text LIMIT ?", (target.key, _MOST_VALUES))
        return _describe([text for (text,) in rows], asked)
    if isinstance(target, Fact):
        return _fact_instead(index, target, asked)
    extremes = f"min({target.column}), max({target.column})"
    [ends] = index.fetch(f"SELECT {extremes} FROM metrics WHERE name = ?", (target.name,))
    return _describe_range(*map(format_value, ends)) if None not in ends else "it is nan"


def _fact_instead(index: Index, fact: Fact, asked: Sequence[str]) -> str:
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
    """The value that was perhaps meant, or what there is, as far as it is short."""
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
