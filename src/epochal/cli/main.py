"""The entry point of the command line: runs one verb and returns its exit code."""

from __future__ import annotations

import errno
import io
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from epochal.text.interrupts import catching_interrupts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from epochal.records.mail.mailbox import Mailbox

_INTERRUPTED_EXIT_CODE = 130  # as in epochal.errors, whose import would be slow
_LOADED = time.perf_counter()  # start-up time includes later imports


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    # Ctrl-C may come at any time: slow imports happen only inside this block.
    try:
        with catching_interrupts():
            _replace_unencodable_characters()
            return _execute(words, begun=_LOADED if argv is None else None)
    except KeyboardInterrupt as interrupt:
        # Preempted has an exit code; importing it here would be slow.
        code: int = getattr(interrupt, "exit_code", _INTERRUPTED_EXIT_CODE)
        return code


def _execute(words: list[str], *, begun: float | None = None) -> int:
    """Run the verb; errors that a user can fix are printed without a traceback."""
    from epochal.cli.parser import build_parser, find_verb, load_verb, parse_arguments
    from epochal.errors import EpochalError, RecordError

    verb = find_verb(words)
    parser = build_parser(verb, with_others=words[:1] != [verb])
    args = parse_arguments(parser, words)
    args.typed, args.begun = words, begun
    if args.verb is None:
        parser.print_help()
        return 0
    try:
        if getattr(args, "runs_dir", ...) is None:
            from epochal.registry.project_file import get_runs_dir

            args.runs_dir = get_runs_dir()
        code = load_verb(args.verb).execute(args)
        if getattr(args, "runs_dir", None) is not None:
            notify_of_mail(args)
        return code
    except EpochalError as error:
        sys.stdout.flush()
        _print_error(str(error))
        return error.exit_code
    except BrokenPipeError:  # the reader of our output, such as `head`, has exited
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # such as a read-only folder or a full disk
        _print_error(_explain(error))
        return RecordError.exit_code


def _explain(error: OSError) -> str:
    """The message for an error of the operating system."""
    text = str(error)
    if error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror.lower()}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{text}\n  ask for write permission, or use a copy in your own folder"
    return f"{text}\n  check the permissions and the free space there"


def _print_error(text: str) -> None:
    """Print an error message with secrets and control characters removed."""
    from epochal.records.secrets import redact
    from epochal.text.error_output import print_error

    print_error(redact(text, is_code=True))


def _replace_unencodable_characters() -> None:
    """Print ``?`` for characters that the terminal's encoding lacks, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def notify_of_mail(args: argparse.Namespace) -> None:
    """Print on a terminal how much mail is unread or unsent."""
    from epochal.records.layout.run_folders import EPOCHAL_DIR

    if args.verb in ("mail", "resume") or getattr(args, "json", False):
        return
    if not sys.stdout.isatty() or not (args.runs_dir / EPOCHAL_DIR / "mail").is_dir():
        return
    # Commands without a mailbox must not wait for this import.
    from epochal.records.mail.mailbox import Mailbox
    from epochal.text.terminal import wrap

    with suppress(OSError):
        box = Mailbox(args.runs_dir)
        counts = {"unread": box.count_unread(), "unsent": _count_unsent(box)}
        hints = {"unread": "epochal mail --unread", "unsent": "epochal mail --send"}
        lines = [
            f"{count} {'mail is' if count == 1 else 'mails are'} {state}: {hints[state]}"
            for state, count in counts.items()
            if count
        ]
        if lines:
            print("\n".join(wrap("; ".join(lines))), file=sys.stderr)


def _count_unsent(box: Mailbox) -> int:
    """Number of unsent mails of this user's runs."""
    if not box.count_outbox():
        return 0
    from epochal.records.mail.outbox import read_outbox  # needs the packages of configs

    return len(read_outbox(box))
