"""Log records on the screen: terminals, files, and programs with a log of their own."""

from __future__ import annotations

import io
import logging
import sys
from typing import TYPE_CHECKING

import pytest
from rich.console import Console as Screen
from rich.text import Text

from epochal.hooks.console.console import LogRedirect, ScreenHandler

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    """The root logger without pytest's handlers on the real streams, put back afterwards."""
    root = logging.getLogger()
    before = list(root.handlers)
    yield root
    root.handlers[:] = before


def screen(*, terminal: bool, encoding: str = "utf-8") -> Screen:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    return Screen(file=file, width=80, force_terminal=terminal, color_system=None)


def shown(screen: Screen) -> str:
    screen.file.flush()
    return screen.file.buffer.getvalue().decode(screen.file.encoding)  # type: ignore[attr-defined]


def emit(target: Screen, message: str, level: int = logging.INFO, **attributes: object) -> str:
    record = logging.LogRecord("digits.task", level, "task.py", 1, message, None, None)
    vars(record).update(attributes)
    ScreenHandler(target).emit(record)
    return shown(target)


def test_a_terminal_shows_time_and_message() -> None:
    text = emit(screen(terminal=True), "hello [bold] world")
    assert text.rstrip()[8:] == " hello [bold] world"


def test_a_file_gets_the_date_too() -> None:
    text = emit(screen(terminal=False), "hello")
    date, time, message = text.split()
    assert len(date) == 10
    assert len(time) == 8
    assert message == "hello"


def test_warnings_show_their_level_and_logger() -> None:
    for terminal in (True, False):
        text = emit(screen(terminal=terminal), "odd", logging.WARNING)
        assert text.rstrip().endswith("warning digits.task: odd")


def test_long_lines_are_not_cut_in_files() -> None:
    assert "x" * 500 in emit(screen(terminal=False), "x" * 500)


def test_a_record_can_have_another_form_on_terminals() -> None:
    picture = Text("a picture")
    assert emit(screen(terminal=True), "words", screen=picture) == "a picture\n"
    assert emit(screen(terminal=False), "words", screen=picture).endswith("words\n")


def test_a_record_can_be_hidden_on_terminals() -> None:
    assert emit(screen(terminal=True), "progress", screen=None) == ""
    assert emit(screen(terminal=False), "progress", screen=None).endswith("progress\n")


def test_characters_that_an_encoding_lacks_are_replaced() -> None:
    assert emit(screen(terminal=False, encoding="ascii"), "loss \u2605").endswith("loss ?\n")


def test_tracebacks_follow_their_message() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        text = emit(screen(terminal=False), "failed", logging.ERROR, exc_info=sys.exc_info())
    assert "failed\nTraceback" in text
    assert text.endswith("ValueError: broken\n")


@pytest.mark.parametrize("terminal", [True, False])
def test_secrets_are_not_shown(terminal: bool) -> None:
    try:
        raise ValueError("token=abcd1234")
    except ValueError:
        error = sys.exc_info()
    text = emit(screen(terminal=terminal), "password=hunter22", logging.ERROR, exc_info=error)
    assert "password=<redacted>" in text
    assert text.endswith("ValueError: token=<redacted>\n")


def test_all_loggers_are_shown_until_the_end(root_logger: logging.Logger) -> None:
    target = screen(terminal=False)
    redirect = LogRedirect(target)
    logging.getLogger("users.module").warning("first")
    redirect.end()
    logging.getLogger("users.module").warning("second")
    assert "first" in shown(target)
    assert "second" not in shown(target)


def test_progress_is_shown_without_logging_set_up(root_logger: logging.Logger) -> None:
    target = screen(terminal=False)
    redirect = LogRedirect(target)
    logging.getLogger("epochal.hooks").info("progress")
    redirect.end()
    assert "progress" in shown(target)
    assert logging.getLogger("epochal").level == logging.NOTSET


def test_a_file_gets_no_second_copy_of_a_printed_log(root_logger: logging.Logger) -> None:
    root_logger.addHandler(logging.StreamHandler(sys.stderr))
    target = screen(terminal=False)
    redirect = LogRedirect(target)
    logging.getLogger("users.module").warning("once")
    redirect.end()
    assert shown(target) == ""


def test_on_a_terminal_other_console_handlers_are_removed_until_the_end(
    root_logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    other = logging.StreamHandler(sys.stdout)
    root_logger.addHandler(other)
    target = screen(terminal=True)
    redirect = LogRedirect(target)
    logging.getLogger("users.module").warning("on the screen")
    redirect.end()
    redirect.end()
    assert "on the screen" in shown(target)
    assert capsys.readouterr().out == ""
    assert root_logger.handlers.count(other) == 1


def test_handlers_that_write_to_files_stay(root_logger: logging.Logger) -> None:
    elsewhere = io.StringIO()
    root_logger.addHandler(logging.StreamHandler(elsewhere))
    redirect = LogRedirect(screen(terminal=True))
    logging.getLogger("users.module").warning("for the file")
    redirect.end()
    assert elsewhere.getvalue() == "for the file\n"


def test_a_screen_that_fails_does_not_fail_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = screen(terminal=False)
    target.file.close()
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "lost", None, None)
    ScreenHandler(target).emit(record)
    assert "Logging error" in capsys.readouterr().err
