"""The line about unread and unsent mail after commands that read runs."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from epochal.records.layout.epochal_dir import EPOCHAL_DIR

if TYPE_CHECKING:
    import argparse


def notify_of_mail(args: argparse.Namespace) -> None:
    """Say on a terminal how much mail is unread or unsent; only reads, never sends."""
    if args.verb in ("mail", "resume") or getattr(args, "json", False):
        return
    if not sys.stdout.isatty() or not (args.runs_dir / EPOCHAL_DIR / "mail").is_dir():
        return
    # Only now: commands that find no mailbox must not wait for this import.
    from epochal.records.mail.mailbox import Mailbox

    with suppress(OSError):
        box = Mailbox(args.runs_dir)
        counts = {"unread": box.count_unread(), "unsent": box.count_unsent()}
        hints = {"unread": "epochal mail --unread", "unsent": "epochal mail --send"}
        lines = [
            f"{count} {'mail is' if count == 1 else 'mails are'} {state}: {hints[state]}"
            for state, count in counts.items()
            if count
        ]
        if lines:
            print("; ".join(lines), file=sys.stderr)
