"""Looks after the mailbox when a command looks at runs: lost runs, unsent mail, the unread."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from epochal.errors import EpochalError
from epochal.records.home import HOME

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

_PATIENCE_SECONDS = 3.0
_MOST_SENT = 20


def attend(root: Path) -> None:
    """Post mails about runs that were lost, and send what is due; never takes long."""
    if not _has_mail(root):
        return
    # Only now: commands that find no mailbox must not wait for what it needs.
    from epochal.records.mail.box import Mailbox
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
    root: Path = args.runs_dir
    if args.verb in ("mail", "resume") or not _has_mail(root):  # those do it themselves
        return
    attend(root)
    if sys.stdout.isatty() and not getattr(args, "json", False):
        from epochal.records.mail.box import Mailbox

        with suppress(OSError):
            count = Mailbox(root).count_unread()
            if count:
                what = "1 mail is" if count == 1 else f"{count} mails are"
                print(f"{what} unread: epochal mail --unread", file=sys.stderr)


def _has_mail(root: Path) -> bool:
    return (root / HOME / "mail").is_dir()
