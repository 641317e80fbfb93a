"""Tests of epochal.cli.pages.diff_view."""

from __future__ import annotations

from epochal.cli.pages.diff_view import DiffView, count_differing, count_same

PAIR = DiffView(names=("A", "B"), words=("one", "my run"))


def test_hint_can_be_typed() -> None:
    [line] = PAIR.more(3, "line", "code")
    assert line == "  3 more lines: `epochal diff one 'my run' --only code --all`"
    [line] = PAIR.more(1, "line", "code")
    assert line.startswith("  1 more line: ")


def test_no_hint_without_hidden_rows() -> None:
    assert list(PAIR.more(0, "line", "code")) == []


def test_all_rows_are_shown_on_request() -> None:
    rows = list(range(9))
    assert PAIR.cut(rows, 5) == 5
    assert PAIR.cut(rows, 50) == 9
    assert DiffView(names=("A", "B"), words=(), has_all=True).cut(rows, 5) == 9


def test_text_is_coloured_only_on_a_terminal() -> None:
    assert PAIR.paint("x", 31) == "x"
    assert DiffView(names=("A",), words=(), has_colours=True).paint("x", 31) == "\x1b[31mx\x1b[0m"


def test_table_is_indented_and_control_characters_are_escaped() -> None:
    lines = list(PAIR.table(("key", "A"), [("k", "\x1b[2Jgone\n")]))
    assert lines == ["  key  A", "  k    \\x1b[2Jgone\\n"]


def test_colour_codes_in_text_are_escaped() -> None:
    assert PAIR.paint("\x1b[31mx", 0) == "\\x1b[31mx"


def test_counts_agree_with_their_verbs() -> None:
    assert (count_same(1), count_same(2)) == ("1 is the same", "2 are the same")
    assert count_differing(1, "file") == "1 file differs"
    assert count_differing(2, "file") == "2 files differ"
