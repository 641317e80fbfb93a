"""Tests of what a run comes to."""

from __future__ import annotations

import pytest

from epochal.engine import RunResult


@pytest.mark.parametrize(
    ("status", "ok"),
    [("finished", True), ("stopped", True), ("failed", False), ("interrupted", False)],
)
def test_a_run_that_ended_by_itself_is_ok(status: str, ok: bool) -> None:
    assert RunResult(status=status, reason="whatever").ok is ok
