"""Tests of how failed and interrupted runs are described."""

from __future__ import annotations

import io
import json
import shutil
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import epochal as ep
from epochal.engine import RunResult
from epochal.engine.execute import result_of_error
from epochal.errors import ConfigError, DataError, Place, Problem, TaskError
from epochal.experiment.record.failure import describe_failure, show_error, show_failure
from epochal.text.formatting import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.usefixtures("command_on_path")
HERE = str(Path(__file__))


def raised(act: Callable[[], object]) -> Exception:
    try:
        act()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def failure_of(error: Exception, folder: Path | None = None) -> str:
    return "\n".join(describe_failure(result_of_error(error, dir=folder)))


def test_failure_of_user_code_shows_its_place_message_and_notes() -> None:
    error = raised(lambda: {}["oops"])
    error.add_note("while building task (shop.Points)")
    text = failure_of(error, Path("runs/a"))
    assert text.splitlines()[:2] == ["'oops'", "  while building task (shop.Points)"]
    assert "test_failure.py:" in text
    assert '{}["oops"]' in text
    assert text.endswith("record: runs/a\nfull traceback: epochal show a --log")


def test_paths_are_relative_to_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(HERE).parent)
    assert "\ntest_failure.py:" in failure_of(raised(lambda: {}["oops"]))


def test_user_code_that_raises_os_errors_is_shown_too() -> None:
    text = failure_of(raised(lambda: Path("/nowhere/data").read_text()))
    assert "test_failure.py" in text
    assert "/nowhere/data" in text


def test_code_of_libraries_is_left_out() -> None:
    import json

    for act in (lambda: json.loads("{"), lambda: format_seconds("soon")):
        text = failure_of(raised(act))
        assert "test_failure.py" in text
        assert not any(file in text for file in ("decoder.py", "formatting.py"))


def test_our_own_errors_show_message_and_notes_without_a_traceback() -> None:
    assert failure_of(DataError("a: b\n  do c")) == "a: b\n  do c"
    error = TaskError("a: b\n  do c")
    error.add_note("raised in the sanity evaluation")
    assert failure_of(error) == "a: b\n  do c\n  raised in the sanity evaluation"


def test_error_without_a_message_says_so() -> None:
    def act() -> None:
        raise AssertionError

    assert failure_of(raised(act)).startswith("(the error has no message)")


def test_syntax_error_in_user_code_shows_its_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("x = (\n")
    error = raised(lambda: compile(path.read_text(), str(path), "exec"))
    error.add_note("while building model")
    text = failure_of(error)
    assert f"{path}:1" in text
    assert text.count("was never closed") == 1
    assert "while building model" in text


def test_error_of_a_loader_process_shows_no_second_traceback() -> None:
    inside = raised(lambda: int("torn"))
    inside.add_note("data: while reading item 2 of pipe 3, Map")
    inner = "".join(traceback.format_exception(inside))
    error = ValueError(f"Caught ValueError in DataLoader worker process 0.\nOriginal {inner}")
    text = failure_of(raised(lambda: (_ for _ in ()).throw(error)))
    assert text.splitlines()[:4] == [
        "Caught ValueError in DataLoader worker process 0.",
        "ValueError: invalid literal for int() with base 10: 'torn'",
        "data: while reading item 2 of pipe 3, Map",
        "",
    ]
    assert "Original Traceback" not in text


def test_notes_of_a_loader_process_are_shown_once() -> None:
    torn = raised(lambda: {}["torn"])
    torn.add_note("data: while reading sample 3 of Rows")
    inner = "".join(traceback.format_exception(torn))
    error = KeyError(f"Caught KeyError in DataLoader worker process 0.\nOriginal {inner}")
    error = ValueError(error.args[0])  # as torch raises it, with the line break at the end
    error.add_note("while evaluating val")
    assert failure_of(raised(lambda: (_ for _ in ()).throw(error))).splitlines()[:5] == [
        "Caught KeyError in DataLoader worker process 0.",
        "KeyError: 'torn'",
        "data: while reading sample 3 of Rows",
        "  while evaluating val",
        "",
    ]


def test_interrupted_run_shows_its_progress() -> None:
    result = RunResult(status="interrupted", reason="user_interrupt", steps=3, exit_code=130)
    assert describe_failure(result) == ["stopped by Ctrl-C after 3 steps, 0.0 s"]


def test_interrupted_run_says_how_to_resume_if_it_can_be(shop: Path) -> None:
    class Interrupting(ep.Hook):
        def __init__(self, step: int) -> None:
            self.step = step

        def step_end(self, run: ep.Run) -> None:
            if run.step == self.step:
                raise KeyboardInterrupt

    result = ep.Experiment("config.yaml", hooks=[Interrupting(8)]).fit(raise_errors=False)
    assert result.dir is not None
    script = f"run the script again, with choices={{'resume': {str(result.dir)!r}}}"
    assert describe_failure(result)[-1] == f"resume: {script}"
    record = result.dir / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"given": []}))
    assert describe_failure(result)[-1] == f"resume: epochal resume {result.dir.name}"
    facts = json.loads(record.read_text())
    for count, shown in (("1", ""), ("2", " --nproc 2"), ("4", "")):  # 4: on two machines
        facts["machine"]["environment"] |= {"WORLD_SIZE": count}
        facts["machine"]["environment"] |= {"LOCAL_WORLD_SIZE": "1" if count == "1" else "2"}
        record.write_text(json.dumps(facts))
        expected = f"resume: epochal resume {result.dir.name}{shown}"
        assert describe_failure(result)[-1] == expected
    for end in ({"status": "preempted"}, {"status": "failed", "reason": "rank_lost"}):
        other = describe_failure(replace(result, **end))
        assert other[-1] == f"resume: epochal resume {result.dir.name}", end
    shutil.rmtree(result.dir / "checkpoints")
    assert "resume" not in "\n".join(describe_failure(result))


def test_failure_is_framed_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    show_failure(result_of_error(TaskError("a: b [c]\n  数字\n\n    " + "word " * 20)))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "╭─ run failed: TaskError ──────────────────────────────────╮",
        "│ a: b [c]                                                 │",
        "│   数字                                                   │",
        "│                                                          │",
        "│     word word word word word word word word word word    │",
        "│     word word word word word word word word word word    │",
        "╰──────────────────────────────────────────────────────────╯",
    ]


def test_a_notebook_gets_the_frame_and_no_empty_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *_: pytest.fail("an output of its own"))
    show_failure(result_of_error(TaskError("no loss")))
    assert "run failed: TaskError" in capsys.readouterr().err


def test_carets_stay_below_their_word_in_the_frame(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    line = "model: {type: shop.Net, width: 3, config: {depth: 4, n_emd: 64}}"
    place = Place("a.yaml", 1, line.index("n_emd") + 1, line, len("n_emd"))
    show_failure(result_of_error(ConfigError(Problem("model", "b", place)), dir=Path("runs/a")))
    rows = capsys.readouterr().err.splitlines()
    (carets,) = [row for row in rows if "^" in row]
    quoted = rows[rows.index(carets) - 1]
    assert quoted[carets.index("^") :][:5] == "n_emd"


def test_frame_is_drawn_in_ascii_and_between_30_and_100_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for columns, width in ((10, 30), (40, 40), (80, 80), (500, 100)):
        stream = io.BytesIO()
        monkeypatch.setattr("sys.stderr", io.TextIOWrapper(stream, encoding="ascii"))
        monkeypatch.setenv("COLUMNS", str(columns))
        show_failure(result_of_error(TaskError(f"a: {'x' * 300}")))
        sys.stderr.flush()
        lines = stream.getvalue().decode().splitlines()
        assert {len(line) for line in lines} == {width}
        assert lines[0].startswith("+- run failed")


def test_error_of_user_code_is_printed_and_has_an_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert show_error(MemoryError("no room")) == 71
    assert "no room" in capsys.readouterr().err


def test_a_failure_is_printed_without_secrets_and_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def act() -> None:
        raise ValueError("no: password=hunter22, correct-horse\x1b[2J and https://me:pw1234@host")

    config = {"mail": {"smtp": {"user": "me", "pass": "correct-horse"}}}
    show_failure(result_of_error(raised(act), config=config))
    shown = capsys.readouterr().err
    assert "no: password=<redacted>, <redacted>\\x1b[2J" in shown
    assert not any(word in shown for word in ("hunter22", "correct-horse", "pw1234", "\x1b"))


def test_messages_that_name_a_secret_key_stay(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem("task.password", "was a secret", hint="give task.password=VALUE")
    show_failure(result_of_error(ConfigError(problem)))
    assert capsys.readouterr().err == "task.password: was a secret\n  give task.password=VALUE\n"


def test_nothing_is_printed_for_a_successful_run(capsys: pytest.CaptureFixture[str]) -> None:
    show_failure(RunResult(status="finished", reason="completed"))
    assert capsys.readouterr() == ("", "")


def test_mistakes_of_a_config_are_listed_as_check_lists_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_failure(result_of_error(ConfigError(Problem("a", "b"), Problem("c", "d"))))
    assert capsys.readouterr().err == "a: b\n\nc: d\n"


def test_a_preempted_run_says_when() -> None:
    result = RunResult(status="preempted", reason="preempted", steps=3, dir=Path("runs/a"))
    assert describe_failure(result) == [
        "preempted after 3 steps, 0.0 s",
        "",
        "record: runs/a",
    ]
    early = RunResult(status="preempted", reason="preempted")
    assert describe_failure(early) == ["preempted before the first step"]
