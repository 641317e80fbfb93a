"""Tests of the log on the terminal and in the run's folder."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from epochal.errors import RecordError
from epochal.experiment.record.logs import FILE_ONLY, logging_to


def test_lines_of_every_logger_reach_terminal_and_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with logging_to(tmp_path / "run.log", level="info"):
        logging.getLogger("epochal.somewhere").info("from us")
        logging.getLogger("users.code").warning("from the user")
    text, shown = (tmp_path / "run.log").read_text(), capsys.readouterr().out
    for message in ("from us", "from the user"):
        assert message in text
        assert message in shown
    assert "WARNING users.code: from the user" in text


def test_lines_below_the_level_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to(None, level="info"):
        logging.getLogger("epochal").debug("a detail")
    assert "a detail" not in capsys.readouterr().out
    with logging_to(None, level="debug"):
        logging.getLogger("epochal").debug("a detail")
    assert "a detail" in capsys.readouterr().out


def test_lines_for_the_file_alone_are_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with logging_to(tmp_path / "run.log", level="info"):
        logging.getLogger("epochal").error("a traceback", extra={FILE_ONLY: True})
    assert "a traceback" in (tmp_path / "run.log").read_text()
    assert "a traceback" not in capsys.readouterr().out


def test_handlers_and_levels_are_restored(tmp_path: Path) -> None:
    root, ours = logging.getLogger(), logging.getLogger("epochal")
    before = list(root.handlers), root.level, ours.level
    with pytest.raises(KeyError), logging_to(tmp_path / "run.log", level="debug"):
        raise KeyError
    assert (list(root.handlers), root.level, ours.level) == before


def test_output_follows_a_replaced_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import io
    import sys

    elsewhere = io.StringIO()
    with logging_to(None, level="info"):
        monkeypatch.setattr(sys, "stdout", elsewhere)
        logging.getLogger("epochal").info("moved")
    assert "moved" in elsewhere.getvalue()


def test_file_and_terminal_get_no_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with logging_to(tmp_path / "run.log", level="info"):
        logging.getLogger("users.code").warning("password=%s for %d num_tokens", "abcdef", 5)
        try:
            raise ValueError("api_key: ghijkl")
        except ValueError:
            logging.getLogger("users.code").exception("failed")
    for text in ((tmp_path / "run.log").read_text(), capsys.readouterr().out):
        assert "password=<redacted> for 5 num_tokens" in text
        assert "ValueError: api_key: <redacted>" in text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_a_full_disk_drops_lines_of_the_file_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with logging_to(Path("/dev/full"), level="info"):
        logging.getLogger("epochal.test").info("still running")
    out, err = capsys.readouterr()
    assert "still running" in out
    assert err == ""


def test_a_log_file_that_cannot_be_created_is_a_record_error(tmp_path: Path) -> None:
    with (
        pytest.raises(RecordError, match=r"gone.*\n  the folder it belongs to is gone"),
        logging_to(tmp_path / "gone" / "run.log", level="info"),
    ):
        raise AssertionError("must not come here")
