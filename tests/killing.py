"""Processes that get a signal at a chosen time: one server forks them all.

``Server`` starts this file in a process where torch is imported. Each ``start`` forks a child of
it, which runs ``epochal`` with some words and injects a signal: at the n-th operation of
``durable``, and again some operations later, or some seconds after the first one; to the child or
to its whole process group.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forked import Child

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

NO_SIGNAL = {"signal": 0}


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code, or minus the signal; and what it printed."""

    code: int
    text: str
    num_operations: int
    seconds: float
    """Seconds since its first operation."""


class Server:
    """Forks processes in a folder, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._output, self._notes = folder / "output.txt", folder / "notes.json"
        orders = folder / "orders"
        os.mkfifo(orders)
        self._child = Child(__file__, str(folder), cwd=folder)
        self._orders = orders.open("w", encoding="utf-8")

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._child.signal(signal.SIGKILL)
        self._orders.close()
        self._child.end()

    def start(self, *words: str, inject: dict[str, Any] = NO_SIGNAL) -> Ended:
        """Run ``epochal`` with some words to its end."""
        self._orders.write(json.dumps({"words": words, "inject": inject}) + "\n")
        self._orders.flush()
        code = json.loads(self._child.stdout.readline() or '"the server has died"')
        text = self._output.read_text(errors="replace")
        notes = json.loads(self._notes.read_text()) if self._notes.exists() else {}
        return Ended(code, text, notes.get("operations", 0), notes.get("seconds", 0.0))


def serve(folder: Path) -> None:
    """Fork a child for every order, and print its exit code."""
    output, notes = folder / "output.txt", folder / "notes.json"
    warnings.simplefilter("default")
    for line in (folder / "orders").open(encoding="utf-8"):
        notes.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            try:
                _run_child(json.loads(line), output, notes)
            finally:
                os._exit(70)  # it raised an error and printed it
        _, status = os.waitpid(child, 0)
        print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)  # noqa: T201 - the answer
        if notes.exists():  # later children need not import these again
            for name in json.loads(notes.read_text())["modules"]:
                with suppress(Exception):
                    import_module(name)


def _run_child(order: dict[str, Any], output: Path, notes: Path) -> None:
    import time

    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    from epochal import durable
    from epochal.cli import main

    injected = InjectedSignal(**order["inject"], clock=time.monotonic)
    durable.system.operations = injected.operations
    try:
        code = main(order["words"])
    except SystemExit as end:
        code = int(end.code or 0)
    modules = [name for name in sys.modules if name.split(".")[0] in ("epochal", "torch", "numpy")]
    seconds = time.monotonic() - injected.started_at if injected.started_at else 0.0
    text = json.dumps({"operations": injected.count, "seconds": seconds, "modules": modules})
    draft = notes.with_suffix(".tmp")
    draft.write_text(text)
    draft.replace(notes)  # the signal may come while it is written
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class InjectedSignal:
    """Operations of ``durable``; one of them sends a signal, or the first one starts a timer."""

    def __init__(
        self,
        *,
        signal: int,
        clock: Callable[[], float],
        operation: int | None = None,
        delay: float | None = None,
        again: int | None = None,
        is_group: bool = False,
    ) -> None:
        from epochal import durable

        self.count = 0
        self.started_at = 0.0
        self._signal, self._delay, self._clock = signal, delay, clock
        self._send = os.killpg if is_group else os.kill
        if is_group:
            os.setsid()
        self._at = {operation, None if operation is None or again is None else operation + again}
        real = durable.Operations()
        self.operations = durable.Operations(
            **{
                field.name: self._guard(field.name, getattr(real, field.name))
                for field in dataclasses.fields(real)
            }
        )

    def _guard(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            number, self.count = self.count, self.count + 1
            if number == 0:
                self._start_timer()
            if number in self._at:
                if name == "write" and self._signal == signal.SIGKILL:  # a part was written
                    real(args[0], memoryview(args[1])[: len(args[1]) // 2])
                self._send(os.getpid(), self._signal)
            return real(*args)

        return call

    def _start_timer(self) -> None:
        self.started_at = self._clock()
        if self._delay is not None:
            timer = threading.Timer(self._delay, self._send, (os.getpid(), self._signal))
            timer.daemon = True
            timer.start()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
