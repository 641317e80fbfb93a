"""A child process ends with its parent and gets signals only from it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from epochal.launch.child_process import start_child

if TYPE_CHECKING:
    from pathlib import Path

PARENT = """
import os, sys
from epochal.launch.child_process import start_child
child = start_child([sys.executable, "-S", "-c", sys.argv[1], sys.argv[2]], {})
os.read(0, 1)  # until the child is ready
os.kill(os.getpid(), 9)
"""
CHILD = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: (os.write(fd, b"told to end"), os._exit(0)))
fd = os.open(sys.argv[1], os.O_WRONLY)
os.write(fd, b"ready ")
while True: signal.pause()
"""


def test_wait_gives_the_exit_code_or_signal() -> None:
    assert start_child([sys.executable, "-S", "-c", "raise SystemExit(3)"], {}).wait() == 3
    code = "import os; os.kill(os.getpid(), 9)"
    assert start_child([sys.executable, "-S", "-c", code], {}).wait() == -signal.SIGKILL


def test_a_child_has_the_environment_and_its_own_group() -> None:
    code = "import os; raise SystemExit(os.environ['A'] != 'b' or os.getpgid(0) != os.getpid())"
    assert start_child([sys.executable, "-S", "-c", code], {"A": "b"}).wait() == 0


def test_a_child_gets_signals() -> None:
    code = "import signal\nwhile True: signal.pause()"
    child = start_child([sys.executable, "-S", "-c", code], {})
    child.send_signal(signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM
    child.send_signal(signal.SIGTERM)  # it has ended, so nothing happens


def test_a_child_whose_parent_is_killed_gets_sigterm(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD, str(pipe)], stdin=subprocess.PIPE
    )
    with pipe.open("rb", buffering=0) as heard:
        assert heard.read(6) == b"ready "
        assert parent.stdin is not None
        parent.stdin.write(b"!")
        parent.stdin.close()
        assert parent.wait() == -signal.SIGKILL
        assert heard.read(11) == b"told to end"
