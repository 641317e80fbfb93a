"""Tests of tables and wrapped lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.cli.draw.text_table import format_table, shorten
from epochal.text.terminal import display_width, print_wrapped, terminal_width, wrap

if TYPE_CHECKING:
    import pytest

HEADER = ("run", "a_name_that_is_rather_long", "val/acc", "optim.lr", "result")
ROWS = [
    ("20261115-204729-22dd", "a/folder/with/a/file.py", "0.9405 ± 0.047", "0.003", "acc 0.94"),
    ("20261115-204803-0c1b", "数字识别的很长的名字和更多", "0.9368", "1e+30", "no value"),
]


def test_columns_are_aligned_by_display_width() -> None:
    text = format_table(("tag", "x"), [("数字", "1"), ("longer", "22")], width=80)
    assert text.splitlines() == ["tag     x", "数字    1", "longer  22"]


def test_lines_fit_the_terminal_and_keep_every_number() -> None:
    for width in (40, 60, 80, 200):
        text = format_table(HEADER, ROWS, width=width)
        assert max(map(display_width, text.splitlines())) <= width
        for number in ("20261115-204729-22dd", "0.9405 ± 0.047", "0.003", "1e+30"):
            assert number in text, (number, width)


def test_control_characters_are_escaped() -> None:
    assert format_table(("key",), [("\x1b[2Jgone\n",)]) == "key\n\\x1b[2Jgone\\n"


def test_names_are_shortened_if_that_is_enough() -> None:
    text = format_table(HEADER, ROWS, width=80)
    assert len(text.splitlines()) == 3
    assert "…" in text


def test_columns_that_do_not_fit_follow_in_a_second_block() -> None:
    rows = [("train/epoch/loss", "0.1", "0.2"), ("val/acc", "0.3", "0.4")]
    text = format_table(("metric", "A last", "B last"), rows, width=24)
    assert text.split("\n\n") == [
        "metric            A last\ntrain/epoch/loss  0.1\nval/acc           0.3",
        "metric            B last\ntrain/epoch/loss  0.2\nval/acc           0.4",
    ]


def test_sentences_are_wrapped_below_themselves_or_below_the_line() -> None:
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


def test_wide_characters_take_two_columns_and_accents_and_colours_none() -> None:
    widths = {"abc": 3, "数字": 4, "e\u0301": 1, "\x1b[31mred\x1b[0m": 3, "ｱ": 1}
    assert {text: display_width(text) for text in widths} == widths


def test_names_lose_their_middle() -> None:
    for text in ("a_very_long_name_of_something", "数字识别的很长的名字和更多", "x"):
        for width in (5, 8, 12, 20):
            short = shorten(text, width)
            assert display_width(short) <= width, (text, width)
            assert (short == text) == (display_width(text) <= width), (text, width)
            assert short.endswith(text[-1]), (text, width)


def test_sentences_lose_whole_words_so_that_no_number_loses_a_digit() -> None:
    assert shorten("val/acc 0.9405  val/loss 0.2117", 24) == "val/acc 0.9405 …"
    assert shorten("val/acc 0.9405", 9) == "val/acc …"
    assert shorten("val/acc 0.9405", 4) == "…"


def test_wrapped_lines_are_indented_below_the_text_after_the_label() -> None:
    line = "  status   finished, max_epochs, epoch 2, step 40"
    assert list(wrap(line, 40)) == [
        "  status   finished, max_epochs, epoch",
        "           2, step 40",
    ]
    assert list(wrap("they differ in 1 parameter", 20)) == ["they differ in 1", "  parameter"]
    assert list(wrap(line, 200)) == [line]


def test_word_that_is_longer_than_a_line_stays_whole() -> None:
    path = "runs/digits/digits-conv/20261115-204810-9957"
    assert list(wrap(f"  folder   {path}", 40)) == [f"  folder   {path}"]
    assert list(wrap(f"it is in {path} now", 40)) == ["it is in", f"  {path}", "  now"]


def test_very_narrow_terminals_show_every_word() -> None:
    line = "  status   finished, max_epochs"
    for width in (1, 5, 12):
        assert " ".join(wrap(line, width)).split() == line.split(), width


def test_lines_in_files_and_pipes_are_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert terminal_width() > 1_000_000
    assert format_table(("a",), [("x" * 500,)]).endswith("x" * 500)
    print_wrapped(["word " * 100, "two\nlines"])
    assert capsys.readouterr().out == "word " * 100 + "\ntwo\nlines\n"
