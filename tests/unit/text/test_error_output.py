"""Errors on a terminal, and in files and pipes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from epochal.errors import Place, Problem
from epochal.text.error_output import print_error

if TYPE_CHECKING:
    import pytest

LINE = "task: {type: demo.task.Spirals, points: 3000, noise: 0.02, data_sead: 7, turns: 1.5}"
PROBLEM = Problem(
    "task.data_sead",
    "unknown argument 'data_sead' of demo.task.Spirals",
    Place("long.yaml", 2, LINE.index("data_sead") + 1, LINE, len("data_sead")),
    "did you mean 'data_seed'?",
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def print_on_terminal(monkeypatch: pytest.MonkeyPatch, text: str, *, columns: int) -> list[str]:
    """The lines that a terminal shows."""
    stream = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", stream)
        patch.setenv("COLUMNS", str(columns))
        print_error(text)
    return stream.getvalue().splitlines()


def test_errors_fit_the_terminal_and_carets_stay_below_the_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert print_on_terminal(monkeypatch, f"{PROBLEM}\n", columns=40) == [
        "task.data_sead: unknown argument",
        "  'data_sead' of demo.task.Spirals",
        "  set in long.yaml:2:60",
        "    …ise: 0.02, data_sead: 7, turns: 1.…",
        "                ^^^^^^^^^",
        "  did you mean 'data_seed'?",
        "",
    ]


def test_errors_are_coloured_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    lines = print_on_terminal(monkeypatch, str(PROBLEM), columns=200)
    first, place, quoted, carets, hint = lines
    assert first == f"\x1b[1;31mtask.data_sead\x1b[0m: {PROBLEM.what}"
    assert place == "\x1b[2m  set in long.yaml:2:60\x1b[0m"
    assert quoted == f"    {LINE}"
    assert carets == f"\x1b[1;31m{' ' * (4 + LINE.index('data_sead'))}^^^^^^^^^\x1b[0m"
    assert hint == "\x1b[36m  did you mean 'data_seed'?\x1b[0m"


def test_errors_in_files_and_pipes_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(str(PROBLEM))
    assert capsys.readouterr().err == f"{PROBLEM}\n"
    print_error("a: \x1b[2Jb")
    assert capsys.readouterr().err == "a: \\x1b[2Jb\n"
