"""Tests of asking the index about runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal.errors import ConfigError
from epochal.records.query.query_runs import (
    QueryResult,
    RunQuery,
    columns_of,
    count_runs,
    decode,
    is_root,
    locate,
    names_in,
    orders_of,
    query_runs,
)
from epochal.records.query.resolve_names import ConfigKey, Fact, Measure
from epochal.records.query.syntax import QueryError, QueryText
from indexed import Indexed, add_run

if TYPE_CHECKING:
    import sqlite3

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@pytest.fixture
def index(connection: sqlite3.Connection) -> Any:
    return Indexed(connection)


def find(index: Any, **question: Any) -> list[str]:
    return [row["run"] for row in query_runs(index, RunQuery(**question), now=NOW).rows]


def test_newest_come_last(index: Any) -> None:
    assert find(index) == ["bad", "good", "odd"]
    assert find(index, limit=2) == ["good", "odd"]
    assert find(index, limit=0) == []
    assert find(index, limit=-3) == []
    assert find(index, limit=2**70) == ["bad", "good", "odd"]


def test_some_runs_are_skipped_and_all_are_counted(index: Any) -> None:
    assert find(index, limit=1, offset=1) == ["good"]
    assert find(index, sort="val/acc desc", limit=1, offset=1) != find(
        index, sort="val/acc desc", limit=1
    )
    assert find(index, offset=9) == []
    assert count_runs(index, RunQuery(limit=1)) == 3
    assert count_runs(index, RunQuery(where="optim.type = SGD", status="failed")) == 1


def test_many_columns_are_read_as_single_ones_are(index: Any) -> None:
    answer = query_runs(index, RunQuery(), now=NOW)
    keys = ["optim.lr", "optim.type", "missing"] * 4
    targets = [*(ConfigKey(key, key) for key in keys), Fact("seed", "seed")]
    assert answer.columns(targets) == [answer.values(target) for target in targets]
    assert answer.columns(targets[:2]) == [answer.values(target) for target in targets[:2]]


def test_mistakes_know_their_place(index: Any) -> None:
    with pytest.raises(QueryError) as caught:
        find(index, where="val/acc > 0 and nope = 1")
    assert (caught.value.start, caught.value.end) == (16, 20)
    assert caught.value.what == "unknown name 'nope'"


def test_limit_of_sorted_runs_keeps_the_first(index: Any) -> None:
    assert find(index, sort="val/acc desc", limit=1) == ["good"]


def test_parts_of_a_question_are_all_met(index: Any) -> None:
    assert find(index, where="optim.type = SGD", status="failed") == ["bad"]
    assert find(index, words=("shop/o",)) == ["odd"]
    assert find(index, words=("runs/store", "wide")) == ["good"]
    assert find(index, words=("nothing",)) == []
    assert find(index, search="sure") == ["odd"]
    assert find(index, search="sure", where="val/acc > 0.5") == []
    assert find(index, below="store/shop/good") == ["good"]
    assert find(index, below="store") == ["bad", "good", "odd"]
    assert find(index, below="sto") == []


def test_rows_hold_every_fact(index: Any) -> None:
    (row,) = query_runs(index, RunQuery(where="run = odd"), now=NOW).rows
    assert (row["status"], row["step"], row["host"], row["best"]) == ("stopped", 20, None, None)
    assert row["age"] == pytest.approx(3 * 3600, abs=0.01)
    assert "stamp" not in row


def test_a_seed_that_sqlite_does_not_take_is_a_number_too(
    index: Any, connection: sqlite3.Connection
) -> None:
    add_run(connection, "large", seed=str(2**64 - 1), started="2026-11-15T10:00:00.000+00:00")
    (row,) = query_runs(index, RunQuery(where=f"seed = {2**64 - 1}")).rows
    assert row["seed"] == 2**64 - 1
    assert find(index, sort="-seed", limit=2) == ["large", "good"]


def test_values_of_each_run(index: Any) -> None:
    answer = query_runs(index, RunQuery())
    assert answer.values(Fact("steps", "step")) == [0, 500, 20]
    assert answer.values(ConfigKey("optim.lr", "optim.lr")) == [None, 1e-3, 0.1]
    assert answer.values(ConfigKey("optim.fused", "optim.fused")) == [None, True, False]
    assert answer.values(ConfigKey("a", "model.widths.0")) == [None, 64, None]
    assert answer.values(Measure("x", "val/acc", "max")) == [None, 0.95, 0.3]
    last = answer.values(Measure("val/loss", "val/loss", "last"))
    assert last[:2] == [None, 0.1]
    assert last[2] != last[2], "not a number, which is not the same as nothing"
    assert answer.values(Fact("path", "path"))[0] == str(Path("runs/store/shop/bad"))
    assert answer.path(answer.rows[0]) == Path("runs/store/shop/bad")


def test_values_of_many_runs(index: Any, connection: sqlite3.Connection) -> None:
    for i in range(600):
        add_run(connection, f"run-{i:03}", params={"optim.lr": float(i)})
    answer = query_runs(index, RunQuery(words=("run-",)))
    assert answer.values(ConfigKey("optim.lr", "optim.lr")) == [float(i) for i in range(600)]


DECODED = [
    (None, None, None),
    ("0.001", 1e-3, 1e-3),
    ("64", 64.0, 64),
    ("-3", -3.0, -3),
    ("9007199254740993", 9007199254740992.0, 9007199254740993),
    ("true", 1.0, True),
    ("SGD", None, "SGD"),
    ("64", None, "64"),
    ("inf", float("inf"), float("inf")),
]


def test_config_values_are_decoded_with_their_types() -> None:
    for text, number, value in DECODED:
        found = decode(text, number)
        assert (found, type(found)) == (value, type(value)), text


def test_keys_that_differ(connection: sqlite3.Connection, index: Any) -> None:
    for name, widths, hooks in (("a", "[1,2]", '[{"type":"A"}]'), ("b", "[1,3]", '[{"type":"B"}]')):
        add_run(
            connection,
            f"pair-{name}",
            params={
                "seed": len(name) + ord(name),
                "same": 1,
                "widths": widths,
                "widths.0": 1,
                "widths.1": int(widths[3]),
                "hooks": hooks,
                "hooks.0.type": hooks[10],
                **({"only.b": None} if name == "b" else {}),
            },
        )
    changed = query_runs(index, RunQuery(words=("pair",))).changed()
    assert [one.key for one in changed] == ["hooks.0.type", "widths", "only.b"]


def test_defaults_of_a_component_that_only_some_have_are_no_keys_that_differ(
    connection: sqlite3.Connection, index: Any
) -> None:
    for name, lr, more in (("a", 1, {}), ("b", 2, {"momentum": 0, "nesterov": True}), ("c", 3, {})):
        add_run(connection, f"few-{name}", params={"kind": len(more), "lr": lr, **more})
    connection.execute("UPDATE params SET is_default = 1 WHERE key = 'momentum'")
    connection.commit()
    changed = query_runs(index, RunQuery(words=("few",))).changed()
    assert [one.key for one in changed] == ["lr", "kind", "nesterov"]  # the most values first


def test_metrics_of_the_runs_that_were_found(index: Any) -> None:
    assert [one.name for one in query_runs(index, RunQuery()).metrics()] == [
        "speed",
        "val/acc",
        "val/loss",
    ]
    assert query_runs(index, RunQuery(where="status = failed")).metrics() == []


def columns(index: Any, text: str) -> list[str]:
    answer = query_runs(index, RunQuery())
    return [one.shown for one in columns_of(index, QueryText(text, "--columns"), answer)]


def test_columns(index: Any) -> None:
    assert columns(index, " ") == []
    assert columns(index, "status, optim.lr, status") == ["status", "optim.lr"]
    assert columns(index, "val/*, tag") == ["val/acc", "val/loss", "tag"]
    assert "optim.lr" in columns(index, "changed")
    with pytest.raises(ConfigError, match="unknown name 'changed'"):
        columns(index, "'changed'")


def test_names_that_a_question_is_about(index: Any) -> None:
    question = RunQuery(
        where="optim.lr > 1 or not (val/acc > 1 and seed in (1)) or tag is missing",
        sort="val/acc desc, step",
    )
    shown = [one.shown for one in names_in(index, question)]
    assert shown == ["optim.lr", "val/acc", "seed", "tag", "step"]
    orders = orders_of(index, question)
    assert [(one.shown, is_descending) for one, is_descending in orders] == [
        ("val/acc", True),
        ("step", False),
    ]
    assert names_in(index, RunQuery()) == []


def test_arguments_are_named_as_they_were_given(index: Any) -> None:
    with pytest.raises(ConfigError, match=r"^where: unknown name"):
        query_runs(index, RunQuery(where="lrr > 1"))
    with pytest.raises(ConfigError, match=r"^--sort: unknown name"):
        query_runs(index, RunQuery(sort="lrr", marks="--"))


def test_runs_of_a_project_are_in_the_index_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "store" / "shop").mkdir(parents=True)
    assert locate(Path("runs/store")) == (Path("runs/store"), "")
    (tmp_path / "runs" / ".epochal").mkdir()
    (tmp_path / "runs" / ".epochal" / "index.db").touch()
    assert locate(Path("runs")) == (Path("runs"), "")
    assert locate(Path("runs/store/shop")) == (Path("runs"), "store/shop")
    assert locate(tmp_path / "runs" / "store") == (tmp_path / "runs", "store")
    (tmp_path / "runs" / "store" / ".epochal").mkdir()
    assert locate(Path("runs/store")) == (Path("runs/store"), "")


def test_folder_of_all_runs_is_recognised(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "store" / "shop" / "20261115-100000-abcd"
    run.mkdir(parents=True)
    (run / "run.json").touch()
    assert is_root(tmp_path / "runs")
    assert not is_root(tmp_path)
    assert not is_root(tmp_path / "nothing")
    (tmp_path / ".epochal").mkdir()
    assert is_root(tmp_path)


def test_empty_answer_has_nothing(index: Any) -> None:
    answer = query_runs(index, RunQuery(where="step > 1e9"))
    assert isinstance(answer, QueryResult)
    assert answer.values(ConfigKey("optim.lr", "optim.lr")) == []
    assert answer.changed() == []
