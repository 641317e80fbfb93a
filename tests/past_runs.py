"""Made-up folders of runs whose process has ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from epochal import durable
from epochal.records import RunFolder, RunWriter
from epochal.records.layout.process import host_name, process_token
from epochal.records.mail.lost_run_mail import ExpectedMail, expect_mail
from epochal.records.mail.mailbox import make_id
from epochal.records.mail.signing import SIGNATURE, write_signed

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.mail.mailbox import Mailbox

RUN = "shop/digits/20261115-031200-a3f9"


def gone() -> dict[str, Any]:
    """A process of this machine that has ended."""
    child = subprocess.Popen([sys.executable, "-S", "-c", ""])
    token = process_token(child.pid)
    child.wait()
    return {"pid": child.pid, "host": host_name(), "process": token or "gone:1"}


def here() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": host_name(), "process": process_token(os.getpid())}


def elsewhere() -> dict[str, Any]:
    return {"pid": 7, "host": "another-machine", "process": "boot:1"}


def leave_run(box: Mailbox, owner: dict[str, Any], **status: Any) -> Path:
    """Write the run folder of a process."""
    folder = box.root / RUN
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    writer = RunWriter(RunFolder(folder))
    writer.write_run({"tag": "digits", "project": "shop", "runner": "train", "desc": "why not"})
    for step, value in enumerate((0.5, 0.9, 0.7)):
        writer.log({"val/acc": value}, step)
    writer.write_status("running", step=3, epoch=1)
    (folder / "logs" / "run.log").write_text("one\ntwo\n")
    writer.close()
    change(folder / "status.json", **owner, **status)
    return folder


def change(path: Path, **values: Any) -> None:
    """Change a file as the run that wrote it would: a signed one is signed again."""
    before = json.loads(path.read_text())
    write = write_signed if before.pop(SIGNATURE, None) else durable.write_json
    write(path, {**before, **values})


def expect_from(box: Mailbox, owner: dict[str, Any], **facts: Any) -> Path:
    """Write the note that the run will send a mail; gives its file."""
    known = {"run": RUN, "monitor": "val/acc", "mode": "max"}
    expect_mail(box, ExpectedMail(**known | facts))
    note = box.folder / "expected" / f"{make_id(RUN)}.json"
    change(note, owner=owner)
    return note
