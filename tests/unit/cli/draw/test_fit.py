"""Tests of text that is made to fit a screen."""

from __future__ import annotations

import pytest

from epochal.cli.draw.table import display_width, pad, print_wrapped, shorten, terminal_width, wrap


def test_wide_characters_take_two_columns_and_accents_and_colours_none() -> None:
    texts = ("abc", "数字", "e\u0301", "\x1b[31mred\x1b[0m", "ｱ")
    assert [display_width(text) for text in texts] == [
        3, 4, 1, 3, 1,
    ]  # fmt: skip
    assert pad("数字", 6) == "数字  "


@pytest.mark.parametrize("width", [5, 8, 12, 20])
@pytest.mark.parametrize(
    "text", ["a_very_long_name_of_something", "数字识别的很长的名字和更多", "x"]
)
def test_names_lose_their_middle(text: str, width: int) -> None:
    short = shorten(text, width)
    assert display_width(short) <= width
    assert (short == text) == (display_width(text) <= width)
    assert short.endswith(text[-1])


def test_sentences_lose_whole_words_so_that_no_number_loses_a_digit() -> None:
    assert shorten("val/acc 0.9405  val/loss 0.2117", 24) == "val/acc 0.9405 …"
    assert shorten("val/acc 0.9405", 9) == "val/acc …"
    assert shorten("val/acc 0.9405", 4) == "…"


def test_lines_go_on_below_what_their_label_is_about() -> None:
    line = "  status   finished, max_epochs, epoch 2, step 40"
    assert list(wrap(line, 40)) == [
        "  status   finished, max_epochs, epoch",
        "           2, step 40",
    ]
    assert list(wrap("they differ in 1 parameter", 20)) == ["they differ in 1", "  parameter"]
    assert list(wrap(line, 200)) == [line]


def test_a_word_that_is_longer_than_a_line_can_still_be_copied() -> None:
    path = "runs/digits/digits-conv/20261115-204810-9957"
    assert list(wrap(f"  folder   {path}", 40)) == [f"  folder   {path}"]
    assert list(wrap(f"it is in {path} now", 40)) == ["it is in", f"  {path}", "  now"]


@pytest.mark.parametrize("width", [1, 5, 12])
def test_screens_without_room_for_anything_lose_nothing(width: int) -> None:
    line = "  status   finished, max_epochs"
    assert " ".join(wrap(line, width)).split() == line.split()


def test_files_and_pipes_have_no_edge(capsys: pytest.CaptureFixture[str]) -> None:
    assert terminal_width() > 1_000_000
    print_wrapped(["word " * 100, "two\nlines"])
    assert capsys.readouterr().out == "word " * 100 + "\ntwo\nlines\n"
