"""Tests of the frame around an error."""

from __future__ import annotations

import pytest

from epochal.experiment.record.failure import draw_box


def test_text_stands_in_a_box_with_a_title() -> None:
    assert draw_box("run failed", "a\nb", width=60).splitlines() == [
        "╭─ run failed ─────────────────────────────────────────────╮",
        "│ a                                                        │",
        "│ b                                                        │",
        "╰──────────────────────────────────────────────────────────╯",
    ]


@pytest.mark.parametrize("width", [10, 60, 80, 100, 500])
@pytest.mark.parametrize("text", ["", "x" * 300, "word " * 60, "  indented " * 30, "a\n\nb"])
def test_all_lines_are_equally_wide(width: int, text: str) -> None:
    lines = draw_box("title " * 40, text, width=width).splitlines()
    assert {len(line) for line in lines} == {min(max(width, 60), 100)}


def test_wrapped_lines_keep_their_indentation() -> None:
    lines = draw_box("t", "    " + "word " * 30, width=60).splitlines()[1:-1]
    assert len(lines) > 1
    assert all(line.startswith("│     word") for line in lines)
