"""The mail about a run that its supervisor does not start again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from epochal.errors import ConfigError
from epochal.launch.farewell import Home, say_farewell
from epochal.launch.restarts import Decision, Ending
from epochal.records.mail import Mailbox
from mail_servers import http_server
from past_runs import expect_from, gone, here, leave_run

if TYPE_CHECKING:
    from pathlib import Path

SURRENDER = Decision(False, "it failed 3 times at step 7", is_surrender=True)
FINAL = Decision(False, "another start would not change the config")


@pytest.fixture
def box(tmp_path: Path) -> Mailbox:
    return Mailbox(tmp_path / "runs")


def nowhere() -> None:
    return None


def kinds(box: Mailbox) -> list[str]:
    return [mail.kind for mail in box.mails()]


def test_giving_up_is_told_with_the_reason(box: Mailbox) -> None:
    with http_server() as hook:
        folder = leave_run(box, gone(), status="failed", reason="exception")
        expect_from(box, here(), is_supervised=True, specs=[{"type": "webhook", "url": hook.url}])
        ending = Ending(code=1, step=7, error="ValueError: torn")
        subject = say_farewell(folder, ending, SURRENDER, nowhere)
    assert subject.startswith("given up: digits a3f9, ")
    assert "it ended with code 1 at step 7 (ValueError: torn); it failed 3 times" in subject
    assert kinds(box) == ["gave_up"]
    assert len(hook.bodies) == 1
    assert say_farewell(folder, ending, SURRENDER, nowhere) == ""


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        ("failed", 78, ["failed"]),
        ("running", 78, ["gave_up"]),
        ("finished", 0, ["finished"]),
        ("failed", 130, []),
    ],
)
def test_an_end_without_another_start_is_what_the_record_says(
    box: Mailbox, status: str, code: int, expected: list[str]
) -> None:
    folder = leave_run(box, gone(), status=status, reason="exception")
    note = expect_from(box, here(), is_supervised=True)
    say_farewell(folder, Ending(code=code, step=7), FINAL, nowhere)
    assert kinds(box) == expected
    assert not note.exists()


def test_a_run_that_told_of_its_end_itself_is_not_told_of_again(box: Mailbox) -> None:
    folder = leave_run(box, gone(), status="finished")
    assert say_farewell(folder, Ending(code=0), FINAL, nowhere) == ""
    assert kinds(box) == []


def test_a_run_that_never_had_a_folder_is_told_of_where_its_config_says(box: Mailbox) -> None:
    home = Home(root=box.root, tag="digits", specs=[])
    subject = say_farewell(None, Ending(code=-9), SURRENDER, lambda: home)
    assert subject == (
        "given up: digits, it was killed by SIGKILL at step 0; it failed 3 times at step 7"
    )
    assert say_farewell(None, Ending(code=-9), SURRENDER, nowhere) == ""
    assert say_farewell(None, Ending(code=130), FINAL, lambda: home) == ""
    assert kinds(box) == ["gave_up"]


def test_a_config_or_a_disk_that_cannot_be_read_is_no_reason_to_fail(box: Mailbox) -> None:
    def broken() -> Home:
        raise ConfigError

    assert say_farewell(None, Ending(code=1), SURRENDER, broken) == ""
    box.root.write_text("a file")
    assert say_farewell(None, Ending(code=1), SURRENDER, lambda: Home(root=box.root)) == ""
