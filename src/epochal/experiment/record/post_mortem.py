"""The debugger that ``--debug`` opens where a run failed."""

from __future__ import annotations

import os
import stat
import sys

from epochal.errors import ConfigError


def open_post_mortem(error: BaseException | None) -> None:
    """Open pdb at the frame that raised ``error``, unless there is no one to type.

    Interrupts and mistakes in a config have nothing to look at.
    """
    if error is None or isinstance(error, KeyboardInterrupt | ConfigError) or not _can_type():
        return
    import pdb

    sys.stderr.write("the debugger is where the run failed: u goes up, q ends\n")
    sys.stderr.flush()
    pdb.post_mortem(error.__traceback__)


def _can_type() -> bool:
    """Whether there is an input, other than the null device."""
    try:
        descriptor = sys.stdin.fileno()
        return os.isatty(descriptor) or not stat.S_ISCHR(os.fstat(descriptor).st_mode)
    except (AttributeError, OSError, ValueError):  # no standard input, or one that was replaced
        return False
