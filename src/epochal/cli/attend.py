"""Looks after the mailbox when a command looks at runs: lost runs, unsent mail, the unread."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from epochal.errors import EpochalError
from epochal.records.home import HOME
from epochal.records.mail.box import FOLDER, Mailbox

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

_PATIENCE_SECONDS = 3.0
_MOST_SENT = 20


def attend(root: Path) -> None:
    """Post mails about runs that were lost, and send what is due; never takes long."""
    if not (root / HOME / FOLDER).is_dir():
        return
    # Only now: most commands find no mailbox, or nothing to do in it.
    from epochal.records.mail.expected import find_silent
    from epochal.records.mail.outbox import read_outbox
    from epochal.records.mail.sending import Sending

    box = Mailbox(root)
    with suppress(OSError, EpochalError):
        find_silent(box)
        due = [parcel for parcel in read_outbox(box) if parcel.is_due]
        if due:
            sending = Sending(pauses=())
            sending.start(due[:_MOST_SENT])
            sending.wait(_PATIENCE_SECONDS)


def attend_after(args: argparse.Namespace) -> None:
    """What a verb that has looked at runs does in the end; on a terminal it tells of mail."""
    root = getattr(args, "runs_dir", None)
    if root is None or args.verb in ("mail", "resume"):  # which do it themselves
        return
    attend(root)
    if sys.stdout.isatty() and not getattr(args, "json", False):
        with suppress(OSError):
            count = Mailbox(root).count_unread()
            if count:
                what = "1 mail is" if count == 1 else f"{count} mails are"
                print(f"{what} unread: epochal mail --unread", file=sys.stderr)
