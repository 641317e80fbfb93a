"""From the tree of a query to SQL in which every value and every name of a user is bound."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, assert_never, final, get_args

from epochal.errors import suggest
from epochal.records.query.names import AGE, Fact, Measure, Setting
from epochal.records.query.tree import Among, Compare, Joined, Missing, Not, Value
from epochal.records.query.values import (
    ACCEPTED_DATES,
    ACCEPTED_TIMES,
    SECONDS,
    read_length,
    read_number,
    read_period,
)
from epochal.records.writer import Status

if TYPE_CHECKING:
    from epochal.records.query.names import Names, Target
    from epochal.records.query.tokens import Written
    from epochal.records.query.tree import Name, Order, Query

STATUSES = (*get_args(Status), "lost", "damaged")
"""Every status that a list of runs can show."""

_NOTHING = ("null", "none")
_TRUTHS = ("true", "false")
_ORDER = ("<", "<=", ">", ">=")
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
            case Among(name, values):
                return _join("or", [self._compare(name, "=", value) for value in values])
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
        if isinstance(target, Setting):
            return self._compare_setting(target, sign, value)
        if isinstance(target, Measure):
            return self._compare_measure(target, sign, value)
        return self._compare_fact(target, sign, value)

    def _compare_fact(self, fact: Fact, sign: str, value: Value) -> Sql:
        column = self._fact(fact)
        if fact.kind == "text":
            test = self._text_test(fact, sign, value)
        elif fact.kind == "time" and sign != "~":
            return self._within(fact, sign, value)
        elif fact.kind == "length" and sign != "~":
            test = _number_test(sign, self._seconds(fact, value))
        else:
            test = self._counted(fact.shown, sign, value)
        return _known(column, test)

    def _text_test(self, fact: Fact, sign: str, value: Value) -> Sql:
        if sign in _ORDER:
            raise self._no_order(fact.shown, value)
        if fact.column == "status" and sign != "~" and value.text not in STATUSES:
            what = f"no run ever has the status {value.text!r}"
            raise self._written.mistake(value.token, what, hint=suggest(value.text, STATUSES))
        return _text_test(sign, value.text)

    def _within(self, fact: Fact, sign: str, value: Value) -> Sql:
        """Where a moment lies with regard to a day, an hour, a minute."""
        period = read_period(value.text, self._names.now)
        if period is None:
            length = read_length(value.text)
            hint = f"write {ACCEPTED_DATES}"
            if length and length.unit == "s":
                hint = f"write age < {value.text}; {fact.shown} is compared with dates"
            what = f"{fact.shown} is a time, got {value.text!r}"
            raise self._written.mistake(value.token, what, hint=hint)
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
        test = tests[sign]
        return _known(moment, Sql(test.text.format(moment.text), test.values))

    def _seconds(self, fact: Fact, value: Value) -> float:
        length = read_length(value.text)
        if length is not None and length.unit == "s":
            return length.amount
        number = read_number(value.text)
        if number is None or math.isnan(number):
            what = f"{fact.shown} is a length of time, got {value.text!r}"
            raise self._written.mistake(value.token, what, hint=f"write {ACCEPTED_TIMES}")
        return number

    def _counted(self, shown: str, sign: str, value: Value) -> Sql:
        number = read_number(value.text)
        if sign == "~" or number is None:
            what = f"{shown} is a number" + f", got {value.text!r}" * (sign != "~")
            hint = "~ finds parts of texts" if sign == "~" else "write one such as 12 or 1e-4"
            raise self._written.mistake(value.token, what, hint=hint)
        return _number_test(sign, number)

    def _compare_measure(self, measure: Measure, sign: str, value: Value) -> Sql:
        test = self._counted(measure.shown, sign, value)
        if test.values and math.isnan(float(str(test.values[0]))):
            if sign not in ("=", "!="):
                what = "nothing is more or less than nan"
                raise self._written.mistake(value.token, what, hint="write = nan or != nan")
            test = Sql("IS NULL" if sign == "=" else "IS NOT NULL")  # how SQLite keeps nan
        return Sql(
            f"runs.id IN (SELECT run_id FROM metrics WHERE name = ? AND {measure.column} "
            f"{test.text})",
            (measure.name, *test.values),
        )

    def _compare_setting(self, setting: Setting, sign: str, value: Value) -> Sql:
        test = self._setting_test(setting, sign, value)
        return Sql(
            f"runs.id IN (SELECT run_id FROM params WHERE key = ? AND {test.text})",
            (setting.key, *test.values),
        )

    def _setting_test(self, setting: Setting, sign: str, value: Value) -> Sql:
        text = value.text
        number = None if value.is_quoted else read_number(text)
        if sign == "~":
            return _known(Sql("text"), _text_test("~", text))
        if sign not in _ORDER:
            same = _same(text if value.is_quoted else _truth(text), number)
            return (
                same if sign == "=" else Sql(f"text IS NOT NULL AND NOT {same.text}", same.values)
            )
        if number is not None and not math.isnan(number):
            return Sql(f"number {sign} ?", (number,))
        length = None if value.is_quoted else read_length(text)
        if length is None:
            raise self._no_order(setting.shown, value)
        return Sql(f"{_lengths(length.unit)} {sign} ?", (length.amount,))

    def _no_order(self, shown: str, value: Value) -> Exception:
        what = f"no text is more or less than another, and {value.text!r} is no number"
        hint = f"write {shown} = {value.text}, or {shown} ~ {value.text} for a part of it"
        return self._written.mistake(value.token, what, hint=hint)


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


def _number_test(sign: str, number: float) -> Sql:
    return Sql(f"{sign} ?", (number,))


def _same(text: str, number: float | None) -> Sql:
    if number is None:
        return Sql("IFNULL(text = ?, 0)", (text,))
    return Sql("(IFNULL(number = ?, 0) OR IFNULL(text = ?, 0))", (number, text))


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
