"""Tests of explaining why a query finds no run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochal.records.query.query_runs import RunQuery, explain_no_match
from indexed import Indexed

if TYPE_CHECKING:
    import sqlite3


EXPLAINED = [
    ("optim.type = adamw", ["no run has optim.type = adamw: did you mean 'AdamW'?"]),
    ("tag = Wide", ["no run has tag = Wide: did you mean 'wide net'?"]),
    ("train.for > 2", ["no run has train.for > 2: it is 10ep, 9ep"]),
    ("val/acc > 2", ["no run has val/acc > 2: it is 0.1 to 0.94"]),
    ("step > 1e6", ["no run has step > 1e6: it is 0 to 500"]),
    ("time > 1w", ["no run has time > 1w: it is 1 min 0 s to 2 h 0 min"]),
    ("host = here", ["no run has host = here: it is missing everywhere"]),
    ("age < 1s", ["no run has age < 1s"]),
    ("optim.lr in (5, 7)", ["no run has optim.lr in (5, 7): it is 0.001, 0.1"]),
    ("seed = 9 and val/acc > 0.5", ["no run has seed = 9: it is 1"]),
    (
        "(step = 7 or step = 8)",
        ["no run has step = 7: it is 0 to 500", "no run has step = 8: it is 0 to 500"],
    ),
    ("status = failed and val/acc > 0.5", []),
    ("not step >= 0", []),
    ("", []),
]


def test_tests_without_a_match_are_listed_with_the_values_of_the_runs(
    connection: sqlite3.Connection,
) -> None:
    index: Any = Indexed(connection)
    for where, lines in EXPLAINED:
        assert explain_no_match(index, RunQuery(where=where)) == lines, where
