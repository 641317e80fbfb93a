"""Mail from real processes: killed runs, a server without an answer, a supervisor that gives up."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from epochal.records.mail.mailbox import Mailbox
from forked import Child, run
from mail_servers import Hook, http_server
from small_project import run_folders, write
from started import Start, starting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOOKS = '''
"""Hooks that end their process."""

import os
import signal

import epochal as ep


class Dies(ep.Hook):
    """Kills its own process after a checkpoint."""

    def checkpoint_saved(self, run, path):
        os.kill(os.getpid(), signal.SIGKILL)


class Fails(ep.Hook):
    """Raises after the first epoch."""

    def epoch_end(self, run, split, metrics):
        raise ValueError("the shelf broke")
'''
WORDS = ("config.yaml", "record.code=false", "log.tensorboard=false", "checkpoint.every=1ep")


@pytest.fixture
def start(shop: Path) -> Iterator[Start]:
    write(shop / "shop" / "hooks.py", HOOKS)
    with starting() as begin:
        yield begin


@pytest.fixture
def box(shop: Path) -> Mailbox:
    return Mailbox(shop / "runs")


def execute(*commands: list[str]) -> list[int]:
    """The exit codes of commands that run at the same time."""
    children = [Child("-m", "epochal", *words) for words in commands]
    return [child.end().returncode for child in children]


def hook_of(name: str) -> str:
    return f"hooks=[{{type: shop.hooks.{name}}}]"


def to(hook: Hook) -> str:
    return f"notify={json.dumps([{'type': 'webhook', 'url': hook.url}])}"


def sent(hook: Hook) -> list[dict[str, Any]]:
    return [json.loads(body) for body in hook.bodies]


def test_killed_run_sends_one_mail_and_another_when_it_ends(
    shop: Path, box: Mailbox, start: Start
) -> None:
    with http_server() as hook:
        assert start("run", *WORDS, hook_of("Dies"), to(hook)).end()[0] == -signal.SIGKILL
        assert box.mails() == []
        assert execute(["runs"], ["show", "last"]) == [0] * 2
        assert box.mails() == []  # commands that only read write no mail
        assert execute(*[["mail", "--json"]] * 3) == [0] * 3
        (lost,) = box.mails()
        assert hook.bodies == []
        assert execute(["mail", "--send"]) == [0]
        code, errors = start("resume", "last", "hooks=[]", "--allow-changed").end()
        assert code == 0, errors
        _, finished = box.mails()
        assert execute(["mail", lost.id, "--delete"]) == [0]
        assert execute(["mail"]) == [0]
    assert box.mails() == [finished]
    assert (lost.kind, finished.kind) == ("lost", "finished")
    assert lost.run == finished.run
    assert lost.subject.startswith(f"lost: shop {run_folders(shop)[0].name[-4:]}, ")
    assert "best val/acc" in lost.subject
    assert [body["id"] for body in sent(hook)] == [lost.id, finished.id]
    assert not list((box.folder / "expected").iterdir())


IMPATIENT = """
import sys
from epochal.cli import main
from epochal.experiment.record import notifier

notifier.SEND_SECONDS /= 20
sys.exit(main(sys.argv[1:]))
"""


def test_mail_server_that_does_not_answer_does_not_delay_the_end(shop: Path, box: Mailbox) -> None:
    with http_server(0) as hook:
        done = run("-c", IMPATIENT, "run", *WORDS, to(hook), "--device", "cpu")
        assert done.returncode == 0, done.stderr
    assert "not sent by webhook: no answer yet" in done.stderr
    (folder,) = run_folders(shop)
    status = json.loads((folder / "status.json").read_text())
    assert status["status"] == "finished"
    assert not (folder / "lease.json").exists()
    assert [path.name for path in (box.folder / "outbox").iterdir()] == [
        f"{box.mails()[0].id}-0.json"
    ]


def test_supervisor_sends_one_mail_when_it_gives_up(box: Mailbox, start: Start) -> None:
    with http_server() as hook:
        code, errors = start(
            "run", *WORDS, hook_of("Fails"), to(hook), "--keep-alive", "--restarts", "0", forks=True
        ).end()
    assert code == 1
    assert "keep-alive: `epochal mail` has the details" in errors
    (mail,) = box.mails()
    assert mail.kind == "gave_up"
    assert "ValueError: the shelf broke" in mail.subject
    assert 'raise ValueError("the shelf broke")' in mail.text
    assert [body["kind"] for body in sent(hook)] == ["gave_up"]
    assert not list((box.folder / "expected").iterdir())
