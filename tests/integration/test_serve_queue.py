"""``epochal serve --allow-launch`` runs the queue itself, and a killed server loses no job."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest

from epochal.launch.pool.devices import LEASES_VARIABLE
from epochal.launch.queue.queue import Queue
from forked import Child
from pooled import waiting_jobs

if TYPE_CHECKING:
    from pathlib import Path

JOB = """#!/bin/sh
exec 3>{pipe}
trap 'exit 75' TERM
echo started >&3
while :; do sleep 1000 & wait $!; done
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a process that its parent died"
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_jobs_wait_again_when_their_server_ends(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other runs of this user on this machine may have leased the CPU.
    monkeypatch.setenv(LEASES_VARIABLE, str(tmp_path / "leases"))
    pipe, program, runs = tmp_path / "pipe", tmp_path / "job.sh", tmp_path / "runs"
    os.mkfifo(pipe)
    program.write_text(JOB.format(pipe=pipe))
    program.chmod(0o700)
    (waiting,) = waiting_jobs(tmp_path / "jobs", 1)
    job = replace(waiting.job, python=str(program))
    job.write(waiting.file)
    queue = Queue(runs)
    queue.add([replace(waiting, job=job)])
    words = ("--allow-launch", "--no-open", "--port", "0", "--runs-dir", str(runs))
    server = Child("-m", "epochal", "serve", *words, cwd=tmp_path)
    with pipe.open() as output:
        assert output.readline() == "started\n"
        assert queue.get(1).state == "running"
        workers = psutil.Process(server.pid).children()
        server.signal(number)
        assert output.read() == "", "all processes of the job have ended"
    server.end()
    psutil.wait_procs(workers)
    assert queue.get(1).state == "waiting"
