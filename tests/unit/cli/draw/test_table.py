"""Tests of tables."""

from __future__ import annotations

import pytest

from epochal.cli.draw.table import display_width, format_table

HEADER = ("run", "a_name_that_is_rather_long", "val/acc", "optim.lr", "result")
ROWS = [
    ("20261115-204729-22dd", "a/folder/with/a/file.py", "0.9405 ± 0.047", "0.003", "acc 0.94"),
    ("20261115-204803-0c1b", "数字识别的很长的名字和更多", "0.9368", "1e+30", "no value"),
]


def test_columns_are_as_wide_as_they_need() -> None:
    assert format_table(("run", "x"), [("a", "1"), ("longer", "22")], width=80) == (
        "run     x\na       1\nlonger  22"
    )


def test_columns_of_wide_characters_are_aligned() -> None:
    text = format_table(("tag", "x"), [("数字", "1"), ("abcdef", "2")], width=80)
    assert text.splitlines() == ["tag     x", "数字    1", "abcdef  2"]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_lines_fit_the_terminal_and_keep_every_number(width: int) -> None:
    text = format_table(HEADER, ROWS, width=width)
    assert max(map(display_width, text.splitlines())) <= width
    for number in ("20261115-204729-22dd", "0.9405 ± 0.047", "0.003", "1e+30"):
        assert number in text


def test_names_are_shortened_where_that_is_enough() -> None:
    text = format_table(HEADER, ROWS, width=80)
    assert len(text.splitlines()) == 3
    assert "…" in text


def test_what_does_not_fit_goes_on_below_with_whole_names() -> None:
    rows = [("train/epoch/loss", "0.1", "0.2"), ("val/acc", "0.3", "0.4")]
    text = format_table(("metric", "A last", "B last"), rows, width=24)
    assert text.split("\n\n") == [
        "metric            A last\ntrain/epoch/loss  0.1\nval/acc           0.3",
        "metric            B last\ntrain/epoch/loss  0.2\nval/acc           0.4",
    ]


def test_sentences_go_on_below_themselves_or_below_the_line() -> None:
    rows = [("*", "e8a38b", "finished: digits 22dd, 0.3 s, best val/acc 0.1406")]
    text = format_table(("", "mail", "subject"), rows, width=40, has_prose=True)
    assert text.splitlines()[1:] == [
        "*  e8a38b  finished: digits 22dd, 0.3 s,",
        "           best val/acc 0.1406",
    ]
    text = format_table(("", "mail", "subject"), rows, width=30, has_prose=True)
    assert text.splitlines()[2:] == [
        "*  e8a38b",
        "    finished: digits 22dd, 0.3",
        "    s, best val/acc 0.1406",
    ]


def test_lines_in_files_and_pipes_are_whole() -> None:
    assert format_table(("a",), [("x" * 500,)]).endswith("x" * 500)
