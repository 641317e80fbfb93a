"""Python processes with torch already imported: one server per test process forks them all.

``Child("-m", "epochal", "runs")`` behaves like ``python -m epochal runs`` with its own folder,
environment and output, but needs no seconds for imports. Tests of imports or of interpreter options
start a real process instead.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_BYTES = 200_000
_IMPORTED = (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "sklearn.datasets",
    "tensorboard.plugins.audio.metadata",
    "tensorboard.summary.writer.event_file_writer",
    "tensorboard.util.tensor_util",
)
_CHECKED = (
    {"optim": "AdamW", "schedule": "cosine", "monitor": "+val/acc", "hooks": ["EarlyStopping"]},
    {"optim": "sgd", "loss": "CrossEntropyLoss", "metrics": ["accuracy"]},
)
"""Configs whose checks parse the sources that most configs need."""


class Child:
    """``python`` with ``-m``, ``-c`` or a file, and arguments; read its output while it runs."""

    def __init__(
        self,
        *words: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: str = "",
    ) -> None:
        order = {
            "words": words,
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
        }
        read_end, write_end = os.pipe()
        exit_read, exit_write = os.pipe()
        self.stdout = os.fdopen(read_end, encoding="utf-8")
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - see end
        with tempfile.TemporaryFile("w+", encoding="utf-8") as stdin:
            stdin.write(input)
            stdin.seek(0)
            files = [stdin.fileno(), write_end, self._errors.fileno(), exit_write]
            socket.send_fds(_server(), [json.dumps(order).encode()], files)
        os.close(write_end)
        os.close(exit_write)
        self._reports = os.fdopen(exit_read, encoding="utf-8")
        self.pid = int(self._reports.readline())
        self.code: int | None = None

    def signal(self, number: int) -> None:
        """Send a signal to it, if it is still alive."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def end(self) -> subprocess.CompletedProcess[str]:
        """Wait for its end; the result has the output that was not read before."""
        out = "" if self.stdout.closed else self.stdout.read()
        self.code = int(self._reports.readline())
        self._errors.seek(0)
        errors = self._errors.read()
        for file in (self.stdout, self._reports, self._errors):
            file.close()
        return subprocess.CompletedProcess([], self.code, out, errors)


def run(*words: str, **choices: Any) -> subprocess.CompletedProcess[str]:
    """Run a ``Child`` to its end."""
    return Child(*words, **choices).end()


def warm_up() -> None:
    """Import and parse once what the forked processes would import and parse each."""
    os.fsync = os.fstat  # type: ignore[assignment]  # as in conftest.py
    os.sync = lambda: None  # a benchmark calls it, and would wait for what others write
    import epochal
    from epochal.check import check
    from epochal.config import load
    from epochal.records.code.framework import digest_package, get_package_dir
    from epochal.records.folder import machine

    for one in walk_packages(epochal.__path__, "epochal."):
        if one.name != "epochal.__main__":
            import_module(one.name)
    for name in _IMPORTED:
        import_module(name)
    parts = {"task": "epochal.testing.TinyTask", "model": "epochal.testing.TinyModel"}
    for config in _CHECKED:
        check(load(parts | config))
    digest_package(get_package_dir())  # it remembers the archive
    machine.package_versions = cache(machine.package_versions)
    machine.package_versions()
    for one in (*weakref.finalize._registry,):  # type: ignore[attr-defined]
        one.atexit = False  # torch takes its operators back, in each child
    gc.freeze()  # garbage collection in a child would copy all shared memory


@cache
def _server() -> socket.socket:
    """The socket of the server of this process; the server ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
        )

    def close() -> None:
        ours.close()
        server.wait()

    atexit.register(close)
    return ours


def _serve(orders: socket.socket) -> dict[str, Any] | None:
    """Fork a child for every order; returns the order in the child, None in the server."""
    reports: dict[int, tuple[int, int]] = {}  # by descriptor: a living child, where to report
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready != orders.fileno():
                poll.unregister(ready)
                _report_end(ready, *reports.pop(ready))
                continue
            message, files, _, _ = socket.recv_fds(orders, _MOST_BYTES, 4)
            if not message:
                return None
            child = os.fork()
            if child == 0:
                orders.close()
                for descriptor, (_, report) in reports.items():
                    os.close(descriptor)
                    os.close(report)
                _dress(files)
                return json.loads(message)  # type: ignore[no-any-return]
            *others, report = files
            for file in others:
                os.close(file)
            os.write(report, f"{child}\n".encode())
            descriptor = os.pidfd_open(child)
            reports[descriptor] = child, report
            poll.register(descriptor, select.POLLIN)


def _dress(files: list[int]) -> None:
    """Replace standard input and output by the files that were sent."""
    for standard, file in enumerate(files[:3]):
        os.dup2(file, standard)
    for file in files:
        os.close(file)


def _report_end(descriptor: int, child: int, report: int) -> None:
    """Report the exit code of a child that has ended."""
    _, status = os.waitpid(child, 0)
    with suppress(BrokenPipeError):  # the test has ended
        os.write(report, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os.close(report)
    os.close(descriptor)


def _live(order: dict[str, Any]) -> None:
    """Do what ``python`` does with these arguments."""
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as the interpreter opens them
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    option, *words = order["words"]
    if option == "-m":
        name, *arguments = words
        sys.argv[:] = [option, *arguments]
        sys.path.insert(0, order["cwd"])
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    if option == "-c":
        code, *arguments = words
        folder, file = "", "<string>"
    else:
        code, arguments = Path(option).read_text(encoding="utf-8"), words
        folder, file = str(Path(option).parent), option
    sys.argv[:] = [option, *arguments]
    sys.path.insert(0, folder)
    sys.modules["__main__"] = main = ModuleType("__main__")
    main.__file__ = file
    exec(compile(code, file, "exec"), vars(main))


def _show(*error: Any) -> int:
    """Show an error that nothing caught, as the interpreter does; the exit code."""
    try:
        sys.excepthook(*error)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 1


def _end(code: int | None) -> NoReturn:
    """End like the interpreter, which would also free every imported module (0.3 s)."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        file.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file, which a child does not import from
    warm_up()
    if found := _serve(socket.socket(fileno=int(sys.argv[1]))):
        try:
            _live(found)
        except SystemExit as end:
            if isinstance(end.code, str):
                raise
            _end(end.code)
        except Exception:
            _end(_show(*sys.exc_info()))
        _end(0)
