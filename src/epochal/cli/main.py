"""From words on the command line to one verb and its exit code."""

from __future__ import annotations

import errno
import io
import os
import sys
import time
from typing import TYPE_CHECKING

from epochal.text.interrupts import catching_interrupts

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130
_LOADED = time.perf_counter()  # somebody waits since then, also for what is imported later


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; gives its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    # Ctrl-C may come at any time: nothing of weight is imported outside of this block.
    try:
        with catching_interrupts():
            _replace_unencodable_characters()
            return _execute(words, begun=_LOADED if argv is None else None)
    except KeyboardInterrupt as wish:
        code: int = getattr(wish, "exit_code", INTERRUPTED)  # of Preempted, not imported here
        return code


def _execute(words: list[str], *, begun: float | None = None) -> int:
    """Do what was typed; an error that somebody can mend is shown without a traceback."""
    from epochal.cli.parser import VERBS, build_parser, load_verb, parse_arguments
    from epochal.errors import EpochalError, RecordError

    parser = build_parser(next((word for word in words if word in VERBS), None))
    args = parse_arguments(parser, words)
    args.typed, args.begun = words, begun
    if args.verb is None:
        parser.print_help()
        return 0
    try:
        code = load_verb(args.verb).execute(args)
        if getattr(args, "runs_dir", None) is not None:
            from epochal.cli.mail_notice import notify_of_mail

            notify_of_mail(args)
        return code
    except EpochalError as error:
        sys.stdout.flush()
        _print_error(str(error))
        return error.exit_code
    except BrokenPipeError:  # the reader of our output, such as `head`, has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a folder that cannot be written, a disk that is full
        _print_error(_explain(error))
        return RecordError.exit_code


def _explain(error: OSError) -> str:
    """Where, what, and what now."""
    text = str(error)
    if error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror.lower()}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{text}\n  ask for the right to write there, or use a copy in a folder of your own"
    return f"{text}\n  look at the rights and the free space there"


def _print_error(text: str) -> None:
    """Tell what is wrong, without secrets that were typed and without steering the terminal."""
    from epochal.records.secrets import redact
    from epochal.text.escape import escape_control

    print(escape_control(redact(text, is_code=True)), file=sys.stderr)


def _replace_unencodable_characters() -> None:
    """Have characters that the terminal's encoding lacks replaced, instead of ending the verb."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
