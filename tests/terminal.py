"""The command line on a real terminal of a chosen width."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import forked

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

_CODE = """
import os, pty, sys, termios
columns, *words = sys.argv[1:]
pid, terminal = pty.fork()
if pid == 0:
    termios.tcsetwinsize(1, (24, int(columns)))
    from epochal.cli import main
    sys.exit(main(words))
while True:
    try:
        os.write(1, os.read(terminal, 65536))
    except OSError:  # the program has ended
        break
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def run_on_terminal(*words: str, cwd: Path, columns: int = 80) -> subprocess.CompletedProcess[str]:
    """Run ``epochal`` in the foreground of a terminal; both outputs come as ``stdout``."""
    env = {"PATH": "/usr/bin:/bin", "TERM": "xterm-256color", "HOME": "/nowhere"}
    return forked.run("-c", _CODE, str(columns), *words, cwd=cwd, env=env)


def without_colours(text: str) -> str:
    """The text without what changes colours or moves the cursor."""
    return _COLOUR.sub("", text)
