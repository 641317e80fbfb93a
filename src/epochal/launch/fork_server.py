"""A server process that imports torch once and forks a process for each job, which is faster.

A forked process has the state of a new one after the same imports. Its parent is the process that
asked for it, not the server, so that it is waited for, and ends with it, like any other child.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, final

from epochal.launch.child_process import bind_to_parent, start_child

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SET_SUBREAPER, _GET_SUBREAPER = 36, 37  # PR_SET_CHILD_SUBREAPER of prctl(2)
_MAX_FILES = 253  # SCM_MAX_FD of unix(7)
_OPTIONS = ("-P", "-m")
"""What follows the interpreter in commands that can be forked; the server has the same options."""


def can_fork(command: Sequence[str]) -> bool:
    """Whether a fork server can start a command: this ``python -P -m MODULE ...``, on Linux."""
    return sys.platform == "linux" and tuple(command[:3]) == (sys.executable, *_OPTIONS)


@final
class ForkServer:
    """Starts commands in forked processes; ``start_child`` has the same arguments.

    It must be used in the main thread, whose end ends the processes.

    Args:
        imports: The modules to import before the first fork.
        environment: All environment variables while it imports.
        cwd: Its folder while it imports.
    """

    def __init__(
        self, imports: Sequence[str], environment: Mapping[str, str], *, cwd: Path
    ) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, *_OPTIONS, __name__, str(theirs.fileno()), *imports]
        try:
            with theirs:
                self._process = start_child(
                    command,
                    environment,
                    cwd=cwd,
                    output=subprocess.DEVNULL,
                    keep_open=[theirs.fileno()],
                )
        except OSError:
            self._orders.close()
            raise

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        cwd: Path,
        output: IO[bytes],
        keep_open: Sequence[int] = (),
    ) -> PendingProcess:
        """Ask for a process; OSError if the server has ended.

        Args:
            command: The complete command; see ``can_fork``.
            environment: All its environment variables.
            cwd: Its folder.
            output: Where its output and its errors go.
            keep_open: Descriptors that it inherits.
        """
        request = {
            "command": list(command),
            "environment": dict(environment),
            "cwd": str(cwd),
            "parent": os.getpid(),
        }
        reply, theirs = socket.socketpair()
        pending = PendingProcess(reply)
        try:
            with theirs, os.fdopen(os.memfd_create("request"), "w", encoding="utf-8") as file:
                json.dump(request, file)  # it may be longer than a message can be
                file.flush()
                file.seek(0)
                files = [file.fileno(), output.fileno(), theirs.fileno(), *keep_open]
                socket.send_fds(self._orders, [b"!"], files)
        except OSError:
            pending.withdraw()
            raise
        return pending

    def retire(self) -> None:
        """Let it end after the forks that it was asked for."""
        self._orders.close()

    def has_ended(self) -> bool:
        """Whether its process is gone."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End it now; the processes that it started continue."""
        self._orders.close()
        if not self.has_ended():
            os.killpg(self._process.pid, signal.SIGKILL)  # with what its imports started
        self._process.wait()


@final
class PendingProcess:
    """A process that a fork server was asked for.

    While there is one, this process adopts what its server forks.
    """

    _num_pending: ClassVar[int] = 0  # of all servers: adopting is a property of the whole process
    _adopts_anyway: ClassVar[bool] = False

    def __init__(self, reply: socket.socket) -> None:
        self._reply = reply
        reply.setblocking(False)
        if PendingProcess._num_pending == 0:
            PendingProcess._adopts_anyway = _is_subreaper()
        self._count(1)

    def find(self) -> ForkedProcess | None:
        """The process, or None while the server imports.

        Raises:
            ChildProcessError: The server has ended without it.
        """
        try:
            text = self._reply.recv(32)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            text = b""
        self._reply.close()
        self._count(-1)
        if not text:
            raise ChildProcessError("the fork server has ended")
        return ForkedProcess(int(text))

    def withdraw(self) -> ForkedProcess | None:
        """The process if it was started; otherwise None, and it will never be started."""
        self._reply.shutdown(socket.SHUT_RD)  # the process cannot report its pid any more, and ends
        try:
            return self.find()
        except ChildProcessError:
            return None

    @staticmethod
    def _count(change: int) -> None:
        PendingProcess._num_pending += change
        adopts = PendingProcess._adopts_anyway or PendingProcess._num_pending > 0
        ctypes.CDLL(None).prctl(_SET_SUBREAPER, int(adopts), 0, 0, 0)


@final
class ForkedProcess:
    """A child of this process that a fork server started; has a part of ``Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that killed it; None while it runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # other code waited for it; Popen says the same
                self.returncode = 0
            else:
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def _is_subreaper() -> bool:
    found = ctypes.c_int()
    ctypes.CDLL(None).prctl(_GET_SUBREAPER, ctypes.byref(found), 0, 0, 0)
    return bool(found.value)


def _main() -> None:
    """The server; in a forked process: its command."""
    number, *imports = sys.argv[1:]
    for name in imports:
        with suppress(ImportError):  # the processes report it, if they need it
            import_module(name)
    requests = socket.socket(fileno=int(number))
    _refuse_unsafe_forks()
    gc.collect()
    gc.freeze()  # garbage collection in a child would copy all shared memory
    request = _serve(requests)
    if request is not None:
        _run(request)


def _refuse_unsafe_forks() -> None:
    """End a server whose imports started threads or CUDA; jobs get new processes then."""
    torch = sys.modules.get("torch")
    child = os.fork()  # OpenBLAS ends its threads before a fork, and starts them when it needs them
    if child == 0:
        os._exit(torch is not None and torch.cuda._is_in_bad_fork())
    _, status = os.waitpid(child, 0)
    if status != 0 or len(list(Path("/proc/self/task").iterdir())) > 1:
        sys.exit("the imported modules have started threads or CUDA")


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork a process for each request; returns the request in that process, None in the server."""
    files = _list_module_files()
    imported = _describe(files)
    while True:
        select.select([requests], [], [])
        if _describe(files) != imported:  # a package was updated: import it again
            os.execv(sys.executable, sys.orig_argv)
        message, received, _, _ = socket.recv_fds(requests, 1, _MAX_FILES)
        if not message:
            return None
        is_ready, may_go = os.pipe()
        between = os.fork()
        if between == 0:
            # The intermediate process exits at once, so the server's parent adopts the next one.
            if _fork_or_end() != 0:
                os._exit(0)
            requests.close()
            os.close(may_go)
            return _set_up_child(received, is_ready)
        os.close(is_ready)
        os.waitpid(between, 0)
        with suppress(BrokenPipeError):
            os.write(may_go, b"!")
        for file in (may_go, *received):
            os.close(file)


def _fork_or_end() -> int:
    try:
        return os.fork()
    except OSError:  # too many processes
        os._exit(1)


def _list_module_files() -> list[Path]:
    # The attribute of some modules would import more when it is asked for.
    names = (getattr(one, "__dict__", {}).get("__file__") for one in sys.modules.values())
    return [Path(name) for name in names if isinstance(name, str)]


def _describe(files: Sequence[Path]) -> list[tuple[int, int] | None]:
    """Time and size of each file, None if it is gone."""
    found: list[tuple[int, int] | None] = []
    for file in files:
        try:
            facts = file.stat()
            found.append((facts.st_mtime_ns, facts.st_size))
        except OSError:
            found.append(None)
    return found


def _set_up_child(received: Sequence[int], is_ready: int) -> dict[str, Any]:
    """Set up a forked process as ``start_child`` sets up a new one; returns its request."""
    file, output, reply, *kept = received
    if not os.read(is_ready, 1):  # the server was killed
        os._exit(128 + signal.SIGTERM)
    with os.fdopen(file, encoding="utf-8") as text:
        request: dict[str, Any] = json.load(text)
    os.setpgid(0, 0)
    bind_to_parent(request["parent"])
    for standard in (1, 2):
        os.dup2(output, standard)
    for one in kept:
        os.set_inheritable(one, True)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    try:
        os.write(reply, str(os.getpid()).encode())
    except BrokenPipeError:  # it is not wanted any more
        os._exit(128 + signal.SIGTERM)
    for one in (is_ready, output, reply):
        os.close(one)
    return request


def _run(request: Mapping[str, Any]) -> None:
    """Do what the interpreter does with a command."""
    sys.orig_argv[:] = request["command"]
    _, _, _, name, *words = request["command"]
    sys.argv[:] = ["-m", *words]  # the next line replaces the first
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()  # by the system, as in each new process; random does so itself
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
