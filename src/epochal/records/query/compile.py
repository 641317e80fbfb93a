"""From the tree of a query to SQL in which every value and every name of a user is bound."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, assert_never, final, get_args

from epochal.errors import suggest
from epochal.records.query.names import AGE, Fact, Measure, Setting
from epochal.records.query.operand import Operand
from epochal.records.query.tree import Among, Compare, Joined, Missing, Not
from epochal.records.query.values import SECONDS
from epochal.records.writer import Status

if TYPE_CHECKING:
    from epochal.records.query.names import Names, Target
    from epochal.records.query.tokens import Written
    from epochal.records.query.tree import Name, Order, Query, Value
    from epochal.records.query.values import Period

STATUSES = (*get_args(Status), "lost", "damaged")
"""Every status that a list of runs can show."""

_NOTHING = ("null", "none")
_TRUTHS = ("true", "false")
_JULIAN = 2_440_587.5
"""The day on which 1970 began, as SQLite counts days."""


class Sql(NamedTuple):
    """A piece of SQL and what is bound to its question marks."""

    text: str
    values: tuple[object, ...] = ()


@final
class Compiler:
    """Turns the parts of a query into SQL over the tables of the index.

    A run that lacks a value meets no comparison with it, and so ``not`` of one is met.
    """

    def __init__(self, names: Names, written: Written) -> None:
        self._names = names
        self._written = written

    def condition(self, query: Query) -> Sql:
        """What is true of the runs that ``query`` asks for; never NULL."""
        match query:
            case Compare(name, sign, value):
                return self._compare(name, sign, value)
            case Among(name, values, is_negated):
                word, sign = ("and", "!=") if is_negated else ("or", "=")
                return _join(word, [self._compare(name, sign, value) for value in values])
            case Missing(name):
                return _missing(self._names.resolve(name, self._written))
            case Not(inner):
                made = self.condition(inner)
                return Sql(f"NOT {made.text}", made.values)
            case Joined(word, parts):
                return _join(word, [self.condition(part) for part in parts])
            case _:
                assert_never(query)

    def order(self, order: Order) -> Sql:
        """What to sort by; runs without a value come last."""
        value = self._sortable(self._names.resolve(order.name, self._written))
        direction = " DESC" * order.is_descending
        return Sql(f"{value.text} IS NULL, {value.text}{direction}", value.values * 2)

    def _sortable(self, target: Target) -> Sql:
        if isinstance(target, Fact):
            return self._fact(target)
        if isinstance(target, Setting):
            chosen = "SELECT COALESCE(number, text) FROM params WHERE run_id = runs.id AND key = ?"
            return Sql(f"({chosen})", (target.key,))
        chosen = f"SELECT {target.column} FROM metrics WHERE run_id = runs.id AND name = ?"
        return Sql(f"({chosen})", (target.name,))

    def _fact(self, fact: Fact) -> Sql:
        """A column of the run, NULL where it is not known."""
        if fact.column == AGE:
            now = self._names.now.timestamp() / SECONDS["d"] + _JULIAN
            return Sql("((? - julianday(runs.started)) * 86400)", (now,))
        if fact.kind == "number" or fact.column == "seconds":
            return Sql(f"runs.{fact.column}")
        return Sql(f"NULLIF(runs.{fact.column}, '')")

    def _compare(self, name: Name, sign: str, value: Value) -> Sql:
        target = self._names.resolve(name, self._written)
        if not value.is_quoted and value.text.casefold() in _NOTHING and sign in ("=", "!="):
            made = _missing(target)
            return made if sign == "=" else Sql(f"NOT {made.text}", made.values)
        if sign == "!~":
            made = self._compare(name, "~", value)
            return _join("and", [Sql(f"NOT {made.text}", made.values), _present(target)])
        operand = Operand(sign, value, self._written)
        if isinstance(target, Setting):
            return _compare_setting(target, operand)
        if isinstance(target, Measure):
            return _compare_measure(target, operand)
        return self._compare_fact(target, operand)

    def _compare_fact(self, fact: Fact, operand: Operand) -> Sql:
        column = self._fact(fact)
        if fact.kind == "text":
            return _known(column, _text_fact_test(fact, operand))
        if fact.kind == "time":
            return _within(fact, operand, operand.read_period(fact.shown, self._names.now))
        if fact.kind == "length":
            seconds = operand.read_seconds(fact.shown)
            return _known(column, Sql(f"{operand.sign} ?", (seconds,)))
        number = operand.read_number(fact.shown)
        if _is_nan(number):
            raise operand.mistake(f"{fact.shown} is never nan", f"write {fact.shown} is missing")
        return _known(column, Sql(f"{operand.sign} ?", (number,)))


def _text_fact_test(fact: Fact, operand: Operand) -> Sql:
    text = operand.text
    if operand.is_order:
        raise operand.no_order(fact.shown)
    if fact.column == "status" and operand.sign != "~" and text not in STATUSES:
        raise operand.mistake(f"no run ever has the status {text!r}", suggest(text, STATUSES))
    return _text_test(operand.sign, text)


def _within(fact: Fact, operand: Operand, period: Period) -> Sql:
    """Where a moment lies with regard to a day, an hour, a minute."""
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
    test = tests[operand.sign]
    return _known(moment, Sql(test.text.format(moment.text), test.values))


def _compare_measure(measure: Measure, operand: Operand) -> Sql:
    number, sign = operand.read_number(measure.shown), operand.sign
    if _is_nan(number):
        test = Sql("IS NULL" if sign == "=" else "IS NOT NULL")  # how SQLite keeps nan
    else:
        # What is nan is not equal to any number.
        test = Sql("IS NOT ?" if sign == "!=" else f"{sign} ?", (number,))
    chosen = f"SELECT run_id FROM metrics WHERE name = ? AND {measure.column} {test.text}"
    return Sql(f"runs.id IN ({chosen})", (measure.name, *test.values))


def _compare_setting(setting: Setting, operand: Operand) -> Sql:
    test = _order_test(setting, operand) if operand.is_order else _setting_test(operand)
    chosen = f"SELECT run_id FROM params WHERE key = ? AND {test.text}"
    return Sql(f"runs.id IN ({chosen})", (setting.key, *test.values))


def _setting_test(operand: Operand) -> Sql:
    if operand.sign == "~":
        return _known(Sql("text"), _text_test("~", operand.text))
    text, number = operand.text, None
    if not operand.value.is_quoted:
        number = operand.find_number()
        text = number if isinstance(number, str) else _truth(text)
    same = Sql("IFNULL(text = ?, 0)", (text,))
    if number is not None and not isinstance(number, str):
        same = Sql("(IFNULL(number = ?, 0) OR IFNULL(text = ?, 0))", (number, text))
    return (
        same if operand.sign == "=" else Sql(f"text IS NOT NULL AND NOT {same.text}", same.values)
    )


def _order_test(setting: Setting, operand: Operand) -> Sql:
    is_quoted = operand.value.is_quoted
    number = None if is_quoted else operand.find_number()
    if number is not None:
        return Sql(f"number {operand.sign} ?", (number,))
    length = None if is_quoted else operand.find_length()
    if length is None:
        raise operand.no_order(setting.shown)
    return Sql(f"{_lengths(length.unit)} {operand.sign} ?", (length.amount,))


def _is_nan(number: object) -> bool:
    return isinstance(number, float) and math.isnan(number)


def _join(word: str, parts: list[Sql]) -> Sql:
    text = f" {word.upper()} ".join(part.text for part in parts)
    return Sql(f"({text})", tuple(value for part in parts for value in part.values))


def _known(column: Sql, test: Sql) -> Sql:
    """The test of a value, false where there is none."""
    return Sql(f"IFNULL({column.text} {test.text}, 0)", (*column.values, *test.values))


def _text_test(sign: str, text: str) -> Sql:
    if sign == "~":
        return Sql("LIKE ? ESCAPE '\\'", (f"%{_escape(text)}%",))
    return Sql(f"{sign} ?", (text,))


def _escape(text: str) -> str:
    for char in "\\%_":
        text = text.replace(char, f"\\{char}")
    return text


def _truth(text: str) -> str:
    return text.casefold() if text.casefold() in _TRUTHS else text


def _lengths(unit: str) -> str:
    """The lengths that texts such as ``90min`` or ``10ep`` spell, NULL for any other text."""
    units = SECONDS if unit == "s" else {unit: 1.0}
    # SQLite reads the number with which a text begins, and leaves the rest.
    cases = " ".join(
        f"WHEN text GLOB '[0-9]*[0-9]{name}' OR text GLOB '[0-9]{name}' "
        f"THEN CAST(text AS REAL) * {seconds}"
        for name, seconds in units.items()
    )
    return f"CASE {cases} END"


def _present(target: Target) -> Sql:
    missing = _missing(target)
    return Sql(f"NOT {missing.text}", missing.values)


def _missing(target: Target) -> Sql:
    """What is true of the runs without a value."""
    if isinstance(target, Setting):
        there = "SELECT run_id FROM params WHERE key = ? AND text IS NOT NULL"
        return Sql(f"(runs.id NOT IN ({there}))", (target.key,))
    if isinstance(target, Measure):
        there = "SELECT run_id FROM metrics WHERE name = ?"
        return Sql(f"(runs.id NOT IN ({there}))", (target.name,))
    column = "started" if target.column == AGE else target.column
    return Sql(f"(IFNULL(runs.{column}, '') = '')")
