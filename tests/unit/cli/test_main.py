"""Tests of running a verb and its exit code."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from epochal.cli.main import main
from epochal.cli.parser import VERBS

if TYPE_CHECKING:
    from pathlib import Path

    from small_project import Command


def test_help_is_printed_without_a_verb(epochal: Command) -> None:
    done = epochal()
    assert done.code == 0
    assert all(verb in done.out for verb in VERBS)


def test_every_verb_has_help(epochal: Command) -> None:
    for verb in VERBS:
        done = epochal(verb, "--help")
        assert done.code == 0, verb
        start = VERBS[verb][:20]
        assert start[0].upper() + start[1:] in done.out.replace("\n", " "), verb


def test_version_is_that_of_the_package(epochal: Command) -> None:
    assert epochal("--version").out == f"epochal {version('epochal')}\n"


def test_unknown_verbs_are_refused_with_the_one_that_was_meant(epochal: Command) -> None:
    for verb, hint in [
        ("chekc", "did you mean 'check'?"),
        ("list", "did you mean 'runs'?"),
        ("compare", "did you mean 'diff'?"),
        ("trian", "did you mean 'run'?"),
        ("zzzzzz", "`epochal --help` lists all verbs"),
    ]:
        done = epochal(verb, "a.yaml")
        assert done.code == 2, verb
        assert done.err.splitlines()[-1] == f"epochal: error: unknown verb {verb!r}; {hint}"


def test_user_errors_are_shown_without_a_traceback(epochal: Command) -> None:
    done = epochal("check", "/nowhere/config.yaml")
    assert done.code == 66
    assert "no such file" in done.err
    assert "Traceback" not in done.err


def test_arguments_of_the_process_are_the_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["epochal", "--version"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert capsys.readouterr().out.startswith("epochal")


def test_ctrl_c_outside_a_run_ends_quietly(
    epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("epochal.cli.verbs.runs.execute", interrupted)
    done = epochal("runs")
    assert (done.code, done.err) == (130, "")


def test_file_in_place_of_a_folder_is_an_error_message(epochal: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = epochal("new", tmp_path / "file" / "project")
    assert done.code == 74
    assert str(tmp_path / "file") in done.err
    assert "Traceback" not in done.err


def test_errors_of_the_disk_have_a_hint(epochal: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for code, hint in [
        (errno.EROFS, "ask for write permission, or use a copy in your own folder"),
        (errno.ENOSPC, "check the permissions and the free space there"),
    ]:

        def refused(_: object, code: int = code) -> int:
            raise OSError(code, os.strerror(code), "runs/x")

        monkeypatch.setattr("epochal.cli.verbs.runs.execute", refused)
        done = epochal("runs")
        assert (done.code, done.err) == (74, f"runs/x: {os.strerror(code).lower()}\n  {hint}\n"), (
            code
        )


def test_closed_pipe_is_no_error() -> None:
    script = "import sys; input(); from epochal.cli import main; sys.exit(main(['--help']))"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=pipe, stdout=pipe, stderr=pipe
    ) as it:
        assert it.stdout is not None
        it.stdout.close()  # before it writes the first word
        _, errors = it.communicate(b"go\n")
    assert (it.returncode, errors) == (0, b"")


def test_unencodable_characters_are_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "größe.yaml"
    path.write_text("tag: größe\n", encoding="utf-8")
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["check", "--json", str(path)]) == 78
    terminal.flush()
    assert b"gr??e" in terminal.buffer.getvalue()  # type: ignore[attr-defined]
