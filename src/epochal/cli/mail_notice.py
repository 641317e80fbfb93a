"""The note about unread and unsent mail after commands that read runs."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from epochal.records.layout.epochal_dir import EPOCHAL_DIR

if TYPE_CHECKING:
    import argparse


def notify_of_mail(args: argparse.Namespace) -> None:
    """Print on a terminal how much mail is unread or unsent."""
    if args.verb in ("mail", "resume") or getattr(args, "json", False):
        return
    if not sys.stdout.isatty() or not (args.runs_dir / EPOCHAL_DIR / "mail").is_dir():
        return
    # Commands without a mailbox must not wait for this import.
    from epochal.records.mail.mailbox import Mailbox
    from epochal.text.terminal import wrap

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
            print("\n".join(wrap("; ".join(lines))), file=sys.stderr)
