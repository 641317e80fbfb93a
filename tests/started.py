"""``epochal`` in its own process, for tests that send signals."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from forked import Child

_FORKING_SUPERVISOR = """
import os, signal, sys, traceback
from epochal.cli import main
from epochal.launch import supervisor
from epochal.launch.child_process import _bind_to_parent

class ForkedRun:
    '''The process of a run, as the supervisor sees it.'''

    def __init__(self, command, environment):
        bind = _bind_to_parent()
        self.pid = os.fork()
        if self.pid:
            return
        code = 70
        try:
            os.setpgid(0, 0)
            bind()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.environ.update(environment)
            code = main(command[3:])  # without `python -m epochal`
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def send_signal(self, number):
        os.kill(self.pid, number)

    def wait(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

supervisor.start_child = ForkedRun
sys.path.insert(0, os.getcwd())
sys.exit(main(sys.argv[1:]))
"""


class Process:
    """``epochal`` with words; a test can wait for its output.

    Args:
        words: The words after ``epochal``.
        forks: Whether a supervisor forks its runs, which then need no seconds for imports.
    """

    def __init__(self, *words: str, forks: bool = False) -> None:
        start = ("-c", _FORKING_SUPERVISOR) if forks else ("-m", "epochal")
        self.child = Child(*start, *words, "--device", "cpu")

    def wait_for(self, text: str) -> None:
        for line in self.child.stdout:
            if text in line:
                return
        raise AssertionError(f"{text!r} never came: {self.end()}")

    def interrupt(self, number: int = signal.SIGINT) -> None:
        self.child.signal(number)

    def end(self) -> tuple[int, str]:
        """The exit code and what was written to standard error."""
        done = self.child.end()
        return done.returncode, done.stderr


Start = Callable[..., Process]


@contextmanager
def starting() -> Iterator[Start]:
    """Starts processes, and kills them when a test fails."""
    started: list[Process] = []

    def begin(*words: str, forks: bool = False) -> Process:
        started.append(Process(*words, forks=forks))
        return started[-1]

    yield begin
    for process in started:
        if process.child.code is None:
            process.interrupt(signal.SIGKILL)
            process.end()
