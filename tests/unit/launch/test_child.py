"""A child ends with its parent, and hears signals from it alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from epochal.launch.child import Child

if TYPE_CHECKING:
    from pathlib import Path

PARENT = """
import os, sys
from epochal.launch.child import Child
child = Child([sys.executable, "-S", "-c", sys.argv[1], sys.argv[2]], {})
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


def test_a_child_gives_its_exit_code_or_signal() -> None:
    assert Child([sys.executable, "-S", "-c", "raise SystemExit(3)"], {}).wait() == 3
    code = "import os; os.kill(os.getpid(), 9)"
    assert Child([sys.executable, "-S", "-c", code], {}).wait() == -signal.SIGKILL


def test_a_child_has_the_environment_and_a_group_of_its_own() -> None:
    code = "import os; raise SystemExit(os.environ['A'] != 'b' or os.getpgid(0) != os.getpid())"
    assert Child([sys.executable, "-S", "-c", code], {"A": "b"}).wait() == 0


def test_a_child_hears_what_it_is_told() -> None:
    code = "import signal\nwhile True: signal.pause()"
    child = Child([sys.executable, "-S", "-c", code], {})
    child.tell(signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM
    child.tell(signal.SIGTERM)  # it is gone, so nothing happens


def test_a_child_whose_parent_is_killed_is_told_to_end(tmp_path: Path) -> None:
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
