"""A run that is asked to stop saves, ends as stopped with the reason, and can be resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from epochal.records.find import read_run
from epochal.records.layout.stop_request import read_stop_request
from epochal.records.mail.mailbox import Mailbox
from small_project import Command, run_folders, write

if TYPE_CHECKING:
    from pathlib import Path

HOOKS = '''
import os
import signal

import epochal as ep
from epochal.records.layout.stop_request import write_stop_request


class Stop(ep.Hook):
    """Asks its own run to stop at step 3, unless it was resumed.

    Args:
        is_signalled: Send SIGTERM, instead of waiting for the heartbeat.
        at: The step.
    """

    def __init__(self, *, is_signalled: bool = True, at: int = 3) -> None:
        self.is_signalled, self.at = is_signalled, at

    def run_start(self, run):
        if self.at == 0:
            self.ask(run)

    def step_end(self, run):
        if run.step == self.at and not run.first_step:
            self.ask(run)

    def ask(self, run):
        write_stop_request(run.dir, "pruned (asha: rank 3 of 3 at evaluation 1)")
        if self.is_signalled:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            run.writer._lease.watch()


class StopsItself(ep.Hook):
    def step_end(self, run):
        if run.step == 3:
            run.stop("good enough")
'''
REASON = "pruned (asha: rank 3 of 3 at evaluation 1)"


@pytest.mark.parametrize("is_signalled", [True, False], ids=["signal", "heartbeat"])
def test_a_run_that_is_asked_to_stop_saves_and_can_be_resumed(
    shop: Path, epochal: Command, is_signalled: bool
) -> None:
    write(shop / "shop" / "stopping.py", HOOKS)
    hook = f"{{type: shop.stopping.Stop, is_signalled: {str(is_signalled).lower()}}}"
    done = epochal("run", "config.yaml", f"hooks=[{hook}]")
    assert done.code == 0
    assert f"stopped ({REASON})" in done.out
    (folder,) = run_folders(shop)
    record = read_run(folder)
    assert (record.summary.status, record.summary.reason) == ("stopped", REASON)
    assert record.summary.step == 3
    assert [path.name for path in (folder / "checkpoints").glob("*3*")]
    assert read_stop_request(folder) == REASON
    done = epochal("resume", folder)
    assert done.code == 0
    record = read_run(folder)
    assert (record.summary.status, record.summary.step) == ("finished", 12)
    assert read_stop_request(folder) == ""


def test_a_run_that_is_asked_to_stop_before_its_first_step_is_stopped_as_well(
    shop: Path, epochal: Command
) -> None:
    write(shop / "shop" / "stopping.py", HOOKS)
    done = epochal("run", "config.yaml", "hooks=[{type: shop.stopping.Stop, at: 0}]")
    assert done.code == 0
    (folder,) = run_folders(shop)
    summary = read_run(folder).summary
    assert (summary.status, summary.reason, summary.step) == ("stopped", REASON, 0)
    assert not any(one.kind == "failed" for one in Mailbox(shop / "runs").mails())


def test_a_run_that_its_own_hook_stopped_continues_when_it_is_resumed(
    shop: Path, epochal: Command
) -> None:
    write(shop / "shop" / "stopping.py", HOOKS)
    done = epochal("run", "config.yaml", "hooks=[shop.stopping.StopsItself]")
    assert "stopped (good enough)" in done.out
    (folder,) = run_folders(shop)
    assert epochal("resume", folder).code == 0
    summary = read_run(folder).summary
    assert (summary.status, summary.step) == ("finished", 12)
