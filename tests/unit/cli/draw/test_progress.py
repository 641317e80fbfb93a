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


def test_nothing_is_shown_in_the_first_second(capsys: pytest.CaptureFixture[str]) -> None:
    show([0.1, 0.9])
    assert capsys.readouterr().err == ""


def test_a_line_is_printed_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    show([0.5, 1.0, 2.0, 9.0, 11.5, 12.0])
    assert capsys.readouterr().err == "at 1.0\nat 11.5\n"


def test_terminal_line_is_overwritten_and_cleared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    show([1.0, 1.05, 1.2])
    assert capsys.readouterr().err == "\r\x1b[Kat 1.0\r\x1b[Kat 1.2\r\x1b[K"
