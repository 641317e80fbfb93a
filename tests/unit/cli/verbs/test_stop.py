"""``epochal stop`` asks runs and sweeps to save and end."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from epochal import durable
from epochal.records.layout.lease import LEASE_FILE, holding_lease
from epochal.records.layout.stop_request import read_stop_request
from epochal.records.mail.compose import mail_kind
from epochal.records.mail.mailbox import Mailbox
from past_runs import here, leave_run
from swept import new_sweep

if TYPE_CHECKING:
    from pathlib import Path

    from small_project import Command


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    sent: list[tuple[int, int]] = []

    def kill(pid: int, number: int) -> None:
        sent.append((pid, number))

    monkeypatch.setattr("epochal.cli.verbs.stop.os.kill", kill)
    return sent


def test_a_running_run_gets_a_request_and_a_signal(
    shop: Path, epochal: Command, signals: list[tuple[int, int]]
) -> None:
    folder = leave_run(Mailbox(shop / "runs"), here())
    with holding_lease(folder):
        done = epochal("stop", folder.name, "--reason", "enough")
    assert done.code == 0
    assert done.out == (
        f"{folder.name} saves and ends after its current step; "
        f"`epochal resume {folder.name}` continues it\n"
    )
    assert read_stop_request(folder) == "stop requested: enough"
    assert signals[-1] == (os.getpid(), signal.SIGTERM)
    signals.clear()
    done = epochal("stop", folder.name)
    assert f"{folder.name}: is not running" in done.err
    assert (done.code, [one for one in signals if one[1] == signal.SIGTERM]) == (74, [])


def test_a_run_on_another_machine_gets_a_request_only(
    shop: Path, epochal: Command, signals: list[tuple[int, int]]
) -> None:
    folder = leave_run(Mailbox(shop / "runs"), here())
    owner = {"pid": 7, "host": "another-machine", "process": "boot:1", "boot": "x"}
    durable.write_json(folder / LEASE_FILE, owner)
    done = epochal("stop", folder.name)
    assert "saves and ends within 15 s, on another-machine" in done.out
    assert read_stop_request(folder) == "stop requested"
    assert (7, signal.SIGTERM) not in signals


def test_the_process_of_a_sweep_gets_a_request(shop: Path, epochal: Command) -> None:
    folder = new_sweep(shop)
    assert "no process runs this sweep" in epochal("stop", "sweeps/last").err
    lock = folder.lock()
    done = epochal("stop", "sweeps/last")
    assert f"`epochal sweep {folder.id}` continues it" in done.out
    assert read_stop_request(folder.path) == "stop requested"
    lock.release()


def test_a_user_who_stops_a_run_gets_no_mail_about_it() -> None:
    assert mail_kind("stopped", "stop requested: enough") is None
    assert mail_kind("stopped", "early_stopping") == "finished"
