"""Compiles queries to SQL in which all names and values of the user are bound parameters."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple, assert_never, final, get_args

from epochal.errors import suggest
from epochal.records.folder.labels import SEPARATOR
from epochal.records.layout.run_status import Status
from epochal.records.query.resolve_names import AGE, FLAGS, LABEL, ConfigKey, Fact, Measure
from epochal.records.query.syntax import (
    SECONDS,
    BoolOp,
    Compare,
    Missing,
    Not,
    Operand,
    read_quantity,
)

if TYPE_CHECKING:
    from epochal.records.query.resolve_names import NameResolver, Target
    from epochal.records.query.syntax import Name, Period, Query, QueryText, SortKey, Token

STATUSES = (*get_args(Status), "lost", "damaged")
"""All statuses that a list of runs can show."""

_NULLS = ("null", "none")
_BOOLEANS = {"true": 1, "false": 0}
_JULIAN = 2_440_587.5
"""The start of 1970 as a Julian day, the unit of SQLite's dates."""


class Sql(NamedTuple):
    """A piece of SQL and the values bound to its question marks."""

    text: str
    values: tuple[object, ...] = ()


@final
class Compiler:
    """Compiles queries to SQL over the tables of the index.

    A comparison is false for a run that lacks the value, so its negation is true.
    """

    def __init__(self, names: NameResolver, query: QueryText) -> None:
        self._names = names
        self._query = query

    def condition(self, query: Query) -> Sql:
        """The condition for ``WHERE``; never NULL."""
        match query:
            case Compare(name, "in" | "not in" as operator, values):
                join, each = ("or", "=") if operator == "in" else ("and", "!=")
                return _join(join, [self._compare(name, each, value) for value in values])
            case Compare(name, operator, values):
                return self._compare(name, operator, values[0])
            case Missing(name):
                return _missing(self._names.resolve(name, self._query))
            case Not(inner):
                return _negate(self.condition(inner))
            case BoolOp(operator, parts):
                return _join(operator, [self.condition(part) for part in parts])
            case _:
                assert_never(query)

    def order(self, key: SortKey) -> Sql:
        """The expressions for ``ORDER BY``; runs without a value come last."""
        value = self._sortable(self._names.resolve(key.name, self._query))
        direction = " DESC" * key.is_descending
        return Sql(f"{value.text} IS NULL, {value.text}{direction}", value.values * 2)

    def _sortable(self, target: Target) -> Sql:
        if isinstance(target, Fact):
            return self._fact(target)
        if isinstance(target, ConfigKey):
            chosen = "SELECT COALESCE(number, text) FROM params WHERE run_id = runs.id AND key = ?"
            return Sql(f"({chosen})", (target.key,))
        chosen = f"SELECT {target.column} FROM metrics WHERE run_id = runs.id AND name = ?"
        return Sql(f"({chosen})", (target.name,))

    def _fact(self, fact: Fact) -> Sql:
        """A column of the run, NULL where it is unknown."""
        if fact.column == AGE:
            now = self._names.now.timestamp() / SECONDS["d"] + _JULIAN
            return Sql("((? - julianday(runs.started)) * 86400)", (now,))
        if fact.kind == "number" or fact.column == "seconds":
            return Sql(f"runs.{fact.column}")
        return Sql(f"NULLIF(runs.{fact.column}, '')")

    def _compare(self, name: Name, operator: str, value: Token) -> Sql:
        target = self._names.resolve(name, self._query)
        is_null = not value.is_quoted and value.text.casefold() in _NULLS
        if is_null and operator in ("=", "!="):
            return _missing(target) if operator == "=" else _negate(_missing(target))
        if target == Fact(target.shown, LABEL):
            return _compare_labels(Operand(operator, value, self._query))
        if operator == "!~":
            contains = self._compare(name, "~", value)
            return _join("and", [_negate(contains), _negate(_missing(target))])
        operand = Operand(operator, value, self._query)
        if isinstance(target, ConfigKey):
            return _compare_config(target, operand)
        if isinstance(target, Measure):
            return _compare_measure(target, operand)
        return self._compare_fact(target, operand)

    def _compare_fact(self, fact: Fact, operand: Operand) -> Sql:
        column = self._fact(fact)
        if fact.kind == "text":
            return _false_if_null(column, _text_fact_test(fact, operand))
        if fact.kind == "time":
            return _within(fact, operand, operand.read_period(fact.shown, self._names.now))
        if fact.kind == "length":
            seconds = operand.read_seconds(fact.shown)
            return _false_if_null(column, Sql(f"{operand.operator} ?", (seconds,)))
        if fact.column in FLAGS and operand.text.casefold() in _BOOLEANS:
            flag = _BOOLEANS[operand.text.casefold()]
            return _false_if_null(column, Sql(f"{operand.operator} ?", (flag,)))
        number = operand.read_number(fact.shown)
        if _is_nan(number):
            raise operand.error(f"{fact.shown} is never nan", f"write {fact.shown} is missing")
        return _false_if_null(column, Sql(f"{operand.operator} ?", (number,)))


def _text_fact_test(fact: Fact, operand: Operand) -> Sql:
    text = operand.text
    if operand.is_order:
        raise operand.no_order(fact.shown)
    if fact.column == "status" and operand.operator != "~" and text not in STATUSES:
        raise operand.error(f"unknown status {text!r}", suggest(text, STATUSES))
    return _text_test(operand.operator, text)


def _compare_labels(operand: Operand) -> Sql:
    """Whether a run has a label, or one with a part; unlike other texts, it may have many."""
    if operand.is_order:
        raise operand.no_order(LABEL)
    if operand.operator in ("~", "!~"):
        part = _text_test("~", operand.text)
        has = Sql(f"(runs.label {part.text})", part.values)
    else:
        whole = f"{SEPARATOR}{operand.text}{SEPARATOR}"
        has = Sql("(instr(? || runs.label || ?, ?) > 0)", (SEPARATOR, SEPARATOR, whole))
    return has if operand.operator in ("=", "~") else _negate(has)


def _within(fact: Fact, operand: Operand, period: Period) -> Sql:
    """Compare a moment with a period such as a day or a minute."""
    begin, end = (moment / SECONDS["d"] + _JULIAN for moment in period)
    moment = Sql(f"julianday(runs.{fact.column})")
    tests = {
        "=": Sql(">= ? AND {0} < ?", (begin, end)),
        "!=": Sql("< ? OR {0} >= ?", (begin, end)),
        "<": Sql("< ?", (begin,)),
        "<=": Sql("< ?", (end,)),
        ">": Sql(">= ?", (end,)),
        ">=": Sql(">= ?", (begin,)),
    }
    test = tests[operand.operator]
    return _false_if_null(moment, Sql(test.text.format(moment.text), test.values))


def _compare_measure(measure: Measure, operand: Operand) -> Sql:
    number, operator = operand.read_number(measure.shown), operand.operator
    if _is_nan(number):
        test = Sql("IS NULL" if operator == "=" else "IS NOT NULL")  # SQLite stores nan as NULL
    else:
        test = Sql("IS NOT ?" if operator == "!=" else f"{operator} ?", (number,))
    chosen = f"SELECT run_id FROM metrics WHERE name = ? AND {measure.column} {test.text}"
    return Sql(f"runs.id IN ({chosen})", (measure.name, *test.values))


def _compare_config(key: ConfigKey, operand: Operand) -> Sql:
    test = _order_test(key, operand) if operand.is_order else _config_test(operand)
    chosen = f"SELECT run_id FROM params WHERE key = ? AND {test.text}"
    return Sql(f"runs.id IN ({chosen})", (key.key, *test.values))


def _config_test(operand: Operand) -> Sql:
    if operand.operator == "~":
        return _false_if_null(Sql("text"), _text_test("~", operand.text))
    text, number = operand.text, None
    if not operand.value.is_quoted:
        number = operand.find_number()
        is_bool = text.casefold() in ("true", "false")
        text = number if isinstance(number, str) else text.casefold() if is_bool else text
    same = Sql("IFNULL(text = ?, 0)", (text,))
    if number is not None and not isinstance(number, str):
        same = Sql("(IFNULL(number = ?, 0) OR IFNULL(text = ?, 0))", (number, text))
    if operand.operator == "=":
        return same
    return Sql(f"text IS NOT NULL AND NOT {same.text}", same.values)


def _order_test(key: ConfigKey, operand: Operand) -> Sql:
    is_quoted = operand.value.is_quoted
    number = None if is_quoted else operand.find_number()
    if number is not None:
        return Sql(f"number {operand.operator} ?", (number,))
    quantity = None if is_quoted else read_quantity(operand.text)
    if quantity is None:
        raise operand.no_order(key.shown)
    return Sql(f"{_quantities(quantity.unit)} {operand.operator} ?", (quantity.amount,))


def _is_nan(number: object) -> bool:
    return isinstance(number, float) and math.isnan(number)


def _join(operator: str, parts: list[Sql]) -> Sql:
    text = f" {operator.upper()} ".join(part.text for part in parts)
    return Sql(f"({text})", tuple(value for part in parts for value in part.values))


def _false_if_null(column: Sql, test: Sql) -> Sql:
    """The test of a value, false where it is NULL."""
    return Sql(f"IFNULL({column.text} {test.text}, 0)", (*column.values, *test.values))


def _text_test(operator: str, text: str) -> Sql:
    if operator == "~":
        escaped = re.sub(r"[\\%_]", r"\\\g<0>", text)
        return Sql("LIKE ? ESCAPE '\\'", (f"%{escaped}%",))
    return Sql(f"{operator} ?", (text,))


def _quantities(unit: str) -> str:
    """The amounts in texts such as ``90min`` or ``10ep``, NULL for other texts."""
    units = SECONDS if unit == "s" else {unit: 1.0}
    # CAST reads the number at the beginning of a text and ignores the rest.
    cases = " ".join(
        f"WHEN text GLOB '[0-9]*[0-9]{name}' OR text GLOB '[0-9]{name}' "
        f"THEN CAST(text AS REAL) * {seconds}"
        for name, seconds in units.items()
    )
    return f"CASE {cases} END"


def _negate(condition: Sql) -> Sql:
    return Sql(f"NOT {condition.text}", condition.values)


def _missing(target: Target) -> Sql:
    """The condition for runs without a value."""
    if isinstance(target, ConfigKey):
        there = "SELECT run_id FROM params WHERE key = ? AND text IS NOT NULL"
        return Sql(f"(runs.id NOT IN ({there}))", (target.key,))
    if isinstance(target, Measure):
        there = "SELECT run_id FROM metrics WHERE name = ?"
        return Sql(f"(runs.id NOT IN ({there}))", (target.name,))
    column = "started" if target.column == AGE else target.column
    return Sql(f"(IFNULL(runs.{column}, '') = '')")
