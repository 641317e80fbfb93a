"""Tests of compiling queries to SQL."""

from __future__ import annotations

import math
import sqlite3
from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal.errors import ConfigError
from epochal.records.index.index_database import create_tables
from epochal.records.index.run_rows import read_params
from epochal.records.query.compile_sql import Compiler
from epochal.records.query.grammar import parse_query, parse_sort_keys
from epochal.records.query.resolve_names import NameResolver
from epochal.records.query.syntax import QueryText
from indexed import add_run, fetch

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def ask(connection: sqlite3.Connection, text: str) -> list[str]:
    """The runs that a query finds, in the order in which they were added."""
    query = QueryText(text, "--where")
    sql = Compiler(NameResolver(fetch(connection), now=NOW), query).condition(parse_query(query))
    rows = connection.execute(
        f"SELECT run, {sql.text} FROM runs ORDER BY id", sql.values
    ).fetchall()
    assert {row[1] for row in rows} <= {0, 1}, "conditions are true or false"
    return [row[0] for row in rows if row[1]]


def test_labels_are_compared_one_by_one() -> None:
    connection = sqlite3.connect(":memory:")
    create_tables(connection)
    for name, labels in {"a": "paper", "b": "figure 2, paper, paperback", "c": ""}.items():
        add_run(connection, name, label=labels, archived=int(name == "c"))
    for text, found in (
        ("label = paper", ["a", "b"]),
        ("label = 'figure 2'", ["b"]),
        ("label = pap", []),
        ("label ~ BACK", ["b"]),
        ("labels != paper", ["c"]),
        ("label !~ back", ["a", "c"]),
        ("label in (paperback, x)", ["b"]),
        ("label not in (paperback, x)", ["a", "c"]),
        ("label is missing", ["c"]),
        ("label is not missing", ["a", "b"]),
        ("label = null", ["c"]),
        ("archived = true", ["c"]),
        ("archived = 0", ["a", "b"]),
        ("archived != True and label = paper", ["a", "b"]),
    ):
        assert ask(connection, text) == found, text
    with pytest.raises(ConfigError, match="texts have no order"):
        ask(connection, "label > a")


FOUND = [
    ("optim.lr > 1e-4 and val/acc > 0.9", ["good"]),
    ("optim.lr >= 0.1", ["odd"]),
    ("optim.lr = 1e-3", ["good"]),
    ("optim.lr = .001", ["good"]),
    ("optim.lr != 0.1", ["good"]),
    ("not optim.lr = 0.1", ["good", "bad"]),
    ("optim.lr is missing", ["bad"]),
    ("optim.lr is not missing", ["good", "odd"]),
    ("optim.lr in (1, 0.1, x)", ["odd"]),
    ("optim.lr not in (1, 0.1)", ["good"]),
    ("not optim.lr in (1, 0.1)", ["good", "bad"]),
    ("tag not in (x, null)", ["good", "odd", "bad"]),
    ("val/loss not in (0.1, nan)", []),
    ("optim.lr < inf", ["good", "odd"]),
    ("optim.type = SGD", ["odd", "bad"]),
    ("optim.type = sgd", []),
    ("optim.type ~ sgd", ["odd", "bad"]),
    ("optim.type !~ SGD", ["good"]),
    ("optim.type != SGD", ["good"]),
    ("optim.fused = true", ["good"]),
    ("optim.fused = False", ["odd"]),
    ("optim.fused = 1", ["good"]),
    ("model.drop = null", ["good", "bad"]),
    ("model.drop is missing", ["good", "bad"]),
    ("model.drop != none", ["odd"]),
    ("model.widths[0] = 64", ["good"]),
    ("model.widths = '[64,128]'", ["good"]),
    ("train.for > 9ep", ["good"]),
    ("train.for >= 9ep", ["good", "odd"]),
    ("train.for = 9ep", ["odd"]),
    ("train.for > 5st", []),
    ("limit < 2h", ["good"]),
    ("limit >= 90min", ["good", "odd"]),
    ("limit > 1w", []),
    ("val/acc > 0.9", ["good"]),
    ("max(val/acc) >= 0.3", ["good", "odd"]),
    ("min(val/loss) < 0.1", ["good"]),
    ("count(val/loss) = 3", ["good", "odd"]),
    ("val/loss = nan", ["odd"]),
    ("val/loss != nan", ["good"]),
    ("val/loss != 0.1", ["odd"]),
    ("val/loss != 0.2", ["good", "odd"]),
    ("val/loss is missing", ["bad"]),
    ("val/loss > 0", ["good"]),
    ("not val/loss > 0", ["odd", "bad"]),
    ("speed in (5, 6)", ["odd"]),
    ("step >= 20", ["good", "odd"]),
    ("steps < 20", ["bad"]),
    ("best > 0.5", ["good"]),
    ("best is missing", ["odd", "bad"]),
    ("seed = 1", ["good"]),
    ("seed != 2", ["good"]),
    ("status = failed or status = stopped", ["odd", "bad"]),
    ("status in (failed, finished)", ["good", "bad"]),
    ("status ~ ish", ["good"]),
    ("tag = 'wide net'", ["good"]),
    ("tag ~ WIDE", ["good"]),
    ("host is missing", ["good", "odd", "bad"]),
    ("host != here", []),
    ("time > 1h", ["good"]),
    ("seconds <= 60", ["odd"]),
    ("time = 1min", ["odd"]),
    ("age < 1d", ["odd"]),
    ("age > 24h", ["good"]),
    ("age is missing", ["bad"]),
    ("started > 2026-11-13", ["good", "odd"]),
    ("started >= 2026-11-16", []),
    ("started < 2026-12 and started > 2025", ["good", "odd"]),
    ("started <= 2026", ["good", "odd"]),
    ("started = 2026-11", ["good", "odd"]),
    ("started != 2026", []),
    ("started is missing", ["bad"]),
    ("(optim.lr > 1 or tag ~ wide) and not status = failed", ["good"]),
]


def test_queries_find_what_they_ask_for(connection: sqlite3.Connection) -> None:
    for text, found in FOUND:
        assert ask(connection, text) == found, text


LARGE = (2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1)


LARGE_TESTS = [
    (f"= {2**53}", [2**53]),
    (f"= {2**53 + 1}", [2**53 + 1]),
    (f"!= {2**53}", LARGE[1:]),
    (f"> {2**53}", LARGE[1:]),
    (f"<= {2**53}", LARGE[:1]),
    (f"< {2**53 + 1}", LARGE[:1]),
    (f"= {2**63 - 1}", [2**63 - 1]),
    (f"> {2**63 - 2}", LARGE[2:]),
    (f"> {2**63 - 1}", LARGE[3:]),
    (f"= {2**63}", [2**63]),
    (f"= +{2**64 - 1}", [2**64 - 1]),
    (f"in ({2**63}, {2**63 - 1})", LARGE[2:4]),
    (f"= {2**70}", []),
    (f"= {'9' * 400}", []),
    ("> -9223372036854775808", LARGE),
]


def test_large_integers_are_compared_exactly() -> None:
    connection = sqlite3.connect(":memory:")
    create_tables(connection)
    for number in LARGE:
        is_large = number > 2**63 - 1
        [param] = read_params({"extra.number": [{"value": number}]})
        run_id = add_run(connection, str(number), seed=str(number) if is_large else number)
        connection.execute("INSERT INTO params VALUES (?, ?, ?, ?, ?)", (run_id, *param))
    for name, (test, found) in product(("seed", "extra.number"), LARGE_TESTS):
        assert ask(connection, f"{name} {test}") == [str(number) for number in found], (name, test)


REFUSED = [
    ("status = fialed", "did you mean 'failed'?"),
    ("status in (fialed)", "unknown status 'fialed'"),
    ("step > many", "step is a number, got 'many'"),
    ("step ~ 2", "~ finds parts of texts"),
    ("val/acc = good", "val/acc is a number, got 'good'"),
    ("val/acc ~ 9", "val/acc is a number"),
    ("val/acc > nan", "write = nan or != nan"),
    ("time > long", "write 30s, 20min, 2h, 7d or 4w"),
    ("age > nan", "age is a length of time"),
    ("time > 3ep", "time is a length of time, got '3ep'"),
    ("started > soon", "write 2026-11-15"),
    ("started > 7d", "write age < 7d"),
    ("started ~ 2026", "~ finds parts of texts; write started = 2026"),
    ("time ~ 2", "time is a length of time"),
    ("best = nan", "write best is missing"),
    ("seed > 9223372036854775808", "integers are ordered up to 9223372036854775807"),
    ("optim.lr > 18446744073709551615", "write 1.84e+19 for an approximate value"),
    ("tag > b", "texts have no order"),
    ("optim.type > SGD", "write optim.type = SGD, or optim.type ~ SGD"),
    ("optim.lr > '1'", "'1' is not a number"),
    ("optim.lr > nan", "nan is neither larger nor smaller than a number"),
    ("optim.lrr > 1", "did you mean 'optim.lr'?"),
    ("val/acc > 90%", "write 0.9"),
    ("val/acc > best", "names are not compared with each other"),
    ("time ~ 3h", "time is a length of time"),
]


def test_what_cannot_be_compared_is_refused(connection: sqlite3.Connection) -> None:
    for text, message in REFUSED:
        with pytest.raises(ConfigError, match="--where: ") as caught:
            ask(connection, text)
        assert message in str(caught.value), text
        assert "^" in str(caught.value), text


INERT = [
    "'; DROP TABLE runs --", '" OR 1=1 --', "' OR '1'='1", "x' UNION SELECT path FROM runs --",
    "%", "_", "%%%", "wide%net", "wide_net", "\\", "\\%", "?", "?1", ":a", "@a", "$a", "{0}", "{}",
    "%s", "%(a)s", "NULL", "); DELETE FROM runs; --", "/* */", "char(0)", "a\nb", "*", "[a-z]*",
    "randomblob(1e9)", "(SELECT 1)",
]  # fmt: skip


def quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def test_texts_are_only_texts(connection: sqlite3.Connection) -> None:
    before = list(connection.iterdump())
    tags = {"good": "wide net", "odd": "100%_sure", "bad": "it's; DROP TABLE runs --"}
    types = {"good": "AdamW", "odd": "SGD", "bad": "SGD"}
    for text, (name, values) in product(INERT, (("tag", tags), ("optim.type", types))):
        equal = [run for run, value in values.items() if text == value]
        contains = [run for run, value in values.items() if text.casefold() in value.casefold()]
        assert ask(connection, f"{name} = {quote(text)}") == equal, (name, text)
        assert ask(connection, f"{name} ~ {quote(text)}") == contains, (name, text)
    assert list(connection.iterdump()) == before


def test_names_are_only_names(connection: sqlite3.Connection) -> None:
    before = list(connection.iterdump())
    for text in (one for one in INERT if one != "[a-z]*"):
        for name in (quote(text), f"max({quote(text)})"):
            with pytest.raises(ConfigError, match=r"unknown name|no run has the metric"):
                ask(connection, f"{name} = 1")
        number = add_run(connection, "new", params={text: 5}, metrics={text: (5.0, 5.0, 5.0)})
        assert ask(connection, f"{quote(text)} = 5 and max({quote(text)}) > 4") == ["new"]
        for table, column in (("runs", "id"), ("params", "run_id"), ("metrics", "run_id")):
            connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))
    assert list(connection.iterdump()) == before


SORTED = [
    ("val/acc", ["odd", "good", "bad"]),
    ("val/acc desc", ["good", "odd", "bad"]),
    ("-val/acc", ["good", "odd", "bad"]),
    ("optim.type, optim.lr", ["good", "odd", "bad"]),
    ("optim.type desc, step", ["bad", "odd", "good"]),
    ("optim.lr desc", ["odd", "good", "bad"]),
    ("started desc", ["odd", "good", "bad"]),
    ("age", ["odd", "good", "bad"]),
    ("max(val/loss)", ["good", "odd", "bad"]),
    ("best", ["good", "odd", "bad"]),
]


def test_runs_without_the_value_are_sorted_last(connection: sqlite3.Connection) -> None:
    for text, found in SORTED:
        query = QueryText(text, "--sort")
        compiler = Compiler(NameResolver(fetch(connection), now=NOW), query)
        parts = [compiler.order(key) for key in parse_sort_keys(query)]
        order = ", ".join(part.text for part in parts)
        values = [value for part in parts for value in part.values]
        rows = connection.execute(f"SELECT run FROM runs ORDER BY {order}, id", values)
        assert [row[0] for row in rows] == found, text


NUMBERS = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 1e300])
RUNS = st.lists(st.tuples(st.none() | NUMBERS, st.none() | NUMBERS), min_size=1, max_size=5)
TESTS = st.tuples(
    st.sampled_from(["lr", "m/x"]), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), NUMBERS
)
TREES = st.recursive(
    TESTS | st.tuples(st.just("missing"), st.sampled_from(["lr", "m/x"])),
    lambda inner: (
        st.tuples(st.just("not"), inner)
        | st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3))
    ),
    max_leaves=8,
)


def write(tree: tuple) -> str:  # type: ignore[type-arg]
    match tree:
        case ("missing", name):
            return f"{name} is missing"
        case ("not", inner):
            return f"not ({write(inner)})"
        case ("and" | "or" as word, parts):
            return f" {word} ".join(f"({write(part)})" for part in parts)
        case (name, sign, number):
            return f"{name} {sign} {number!r}"
    raise AssertionError(tree)


def holds(tree: tuple, run: dict[str, float | None]) -> bool:  # type: ignore[type-arg]
    """What the query says of a run, by the rules of the page about it."""
    match tree:
        case ("missing", name):
            return run[name] is None
        case ("not", inner):
            return not holds(inner, run)
        case ("and", parts):
            return all(holds(part, run) for part in parts)
        case ("or", parts):
            return any(holds(part, run) for part in parts)
    name, sign, number = tree
    value = math.nan if run[name] is None else run[name]
    return (
        not math.isnan(value)
        and {
            "=": value == number,
            "!=": value != number,
            "<": value < number,
            "<=": value <= number,
            ">": value > number,
            ">=": value >= number,
        }[sign]
    )


@given(RUNS, TREES)
@settings(max_examples=100, deadline=None)
def test_sql_means_what_the_query_says(
    runs: list[tuple[float | None, float | None]],
    tree: tuple,  # type: ignore[type-arg]
) -> None:
    connection = sqlite3.connect(":memory:")
    create_tables(connection)
    add_run(connection, "has both", params={"lr": 0.5}, metrics={"m/x": (1.0, 1.0, 1.0)})
    facts = [{"lr": 0.5, "m/x": 1.0}, *({"lr": lr, "m/x": x} for lr, x in runs)]
    for i, (lr, x) in enumerate(runs):
        params = {} if lr is None else {"lr": lr}
        add_run(connection, f"{i}", params=params, metrics={} if x is None else {"m/x": (x, x, x)})
    found = ask(connection, write(tree))
    names = ["has both", *(str(i) for i in range(len(runs)))]
    assert found == [name for name, run in zip(names, facts, strict=True) if holds(tree, run)]
    connection.close()


@given(
    st.sampled_from(["tag", "step", "started", "age", "optim.lr", "optim.type", "val/acc"]),
    st.sampled_from(["=", "!=", "<", ">=", "~", "!~"]),
    st.text(max_size=20),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_any_value_is_compared_or_refused(name: str, sign: str, text: str, quoted: bool) -> None:
    connection = sqlite3.connect(":memory:")
    create_tables(connection)
    add_run(
        connection,
        "one",
        started="2026-11-14T10:00:00.000+00:00",
        params={"optim.lr": 1.0, "optim.type": "SGD"},
        metrics={"val/acc": (1.0, 1.0, 1.0)},
    )
    value = quote(text) if quoted else text
    try:
        assert ask(connection, f"{name} {sign} {value}") in ([], ["one"])
    except ConfigError:
        pass
    finally:
        connection.close()
