from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from epochal.cli.draw.progress import Progress

if TYPE_CHECKING:
    import pytest


def show(times: list[float]) -> None:
    clock = iter([0.0, *times])
    with Progress(lambda: next(clock)) as progress:
        for time in times:
            progress(f"at {time}")


def test_what_is_over_within_a_second_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show([0.1, 0.9])
    assert capsys.readouterr().err == ""


def test_what_takes_longer_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    show([0.5, 1.0, 2.0, 9.0, 11.5, 12.0])
    assert capsys.readouterr().err == "at 1.0\nat 11.5\n"


def test_on_a_terminal_one_line_is_written_over_and_cleared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    show([1.0, 1.05, 1.2])
    assert capsys.readouterr().err == "\r\x1b[Kat 1.0\r\x1b[Kat 1.2\r\x1b[K"
