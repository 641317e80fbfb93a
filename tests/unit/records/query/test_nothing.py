"""Tests of why a question finds no run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from epochal.records.query.ask import Question
from epochal.records.query.nothing import explain_nothing
from indexed import Indexed

if TYPE_CHECKING:
    import sqlite3


@pytest.mark.parametrize(
    ("where", "lines"),
    [
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
        ("(step = 7 or step = 8)", ["no run has step = 7: it is 0 to 500"] * 2),
        ("status = failed and val/acc > 0.5", []),
        ("not step >= 0", []),
        ("", []),
    ],
)
def test_tests_that_no_run_meets_are_told_with_what_runs_have(
    connection: sqlite3.Connection, where: str, lines: list[str]
) -> None:
    index: Any = Indexed(connection)
    found = explain_nothing(index, Question(where=where))
    assert [line.replace("step = 8", "step = 7") for line in found] == lines
