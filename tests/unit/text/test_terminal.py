"""Tests of epochal.text.terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

WAITS_UNTIL_CLOSED = """
import os, sys
sys.stdin.read()
try:
    os.write(1, b"lost")
except OSError:
    from epochal.text.terminal import leave_closed_terminal
    leave_closed_terminal()
    print("nowhere", flush=True)
    sys.exit(7)
"""


def test_printing_continues_after_a_terminal_was_closed() -> None:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", WAITS_UNTIL_CLOSED],
        stdin=subprocess.PIPE,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    os.close(ours)
    child.communicate()
    assert child.returncode == 7
