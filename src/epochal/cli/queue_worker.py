"""Runs the queue, and sweeps that were continued, beside the web server."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, final

from epochal.launch.child_process import start_child
from epochal.launch.queue.queue import Queue
from epochal.launch.queue.worker import read_worker
from epochal.records.layout.process import describe_process
from epochal.records.layout.run_folders import make_epochal_dir
from epochal.text.command import epochal_command

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

LOG_FILE = "worker.log"
_MAX_LOG_BYTES = 1_000_000


@final
class ChildWorker:
    """Processes that run jobs; they end with this process, and their jobs save and wait again.

    Args:
        runs_dir: The folder of all runs.
    """

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir.absolute()
        self._children: list[subprocess.Popen[bytes]] = []
        self.log = make_epochal_dir(self._runs_dir) / LOG_FILE
        if self.log.is_file() and self.log.stat().st_size > _MAX_LOG_BYTES:
            self.log.unlink()  # a shorter one may be that of another server of these runs
        self._start("queue", "work", "--wait")

    def _start(self, *words: str) -> None:
        command = [sys.executable, "-P", "-m", "epochal", *words, "--runs-dir", str(self._runs_dir)]
        opened = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(opened, "ab") as output:
            self._children.append(start_child(command, {}, output=output))

    @property
    def is_alive(self) -> bool:
        """Whether the worker of the queue still runs."""
        return self._children[0].poll() is None

    def start_sweep(self, sweep_id: str) -> None:
        """Run the trials of a sweep that nothing runs now."""
        self._start("sweep", sweep_id)

    def stop(self) -> None:
        """Let running jobs save, and wait until they end; Ctrl-C kills them."""
        running = [one for one in self._children if one.poll() is None]
        queue, own = Queue(self._runs_dir), [describe_process(one.pid) for one in running]
        jobs = sum(read_worker(job) in own for job in queue.list_jobs("running"))
        for one in running:
            one.send_signal(signal.SIGTERM)
        if jobs:
            noun = "run saves" if jobs == 1 else f"{jobs} runs save"
            print(f"the {noun} and will be continued; Ctrl-C again kills", flush=True)
        try:
            for one in running:
                one.wait()
        except KeyboardInterrupt:
            for one in running:
                with suppress(ProcessLookupError):
                    one.send_signal(signal.SIGTERM)  # a pool kills its jobs after a second one
                one.wait()
        waiting = len(queue.list_jobs("waiting"))
        if waiting and running:
            noun = "1 job waits" if waiting == 1 else f"{waiting} jobs wait"
            command = epochal_command()
            ways = f"`{command} serve --allow-launch` or `{command} queue work`"
            print(f"{noun} in the queue for {ways}", flush=True)
