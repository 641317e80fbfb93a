"""Tests of tables."""

from __future__ import annotations

from epochal.cli.table import format_table


def test_columns_are_as_wide_as_they_need() -> None:
    assert format_table(("run", "x"), [("a", "1"), ("longer", "22")], width=80) == (
        "run     x\na       1\nlonger  22"
    )


def test_lines_end_where_the_terminal_ends() -> None:
    text = format_table(("run", "result"), [("a", "long " * 30)], width=20)
    assert [len(line) for line in text.splitlines()] == [11, 20]
    assert text.endswith("…")


def test_lines_in_files_and_pipes_are_whole() -> None:
    assert format_table(("a",), [("x" * 500,)]).endswith("x" * 500)
