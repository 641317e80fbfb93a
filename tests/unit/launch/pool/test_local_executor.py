"""Each job has a process with its own folder, environment and output."""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from epochal.launch.pool.local_executor import LocalExecutor, format_job_command
from epochal.launch.pool.pool import plan_start
from epochal.records.folder.folder import Parent
from pooled import device, forking_executor, make_leases, script_executor, waiting_jobs

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.launch.pool.backlog import WaitingJob
    from epochal.launch.pool.executor import JobHandle, JobStart

PRINT = "import json, os; print(json.dumps([os.getcwd(), dict(os.environ)]))"


def start_of(tmp_path: Path, waiting: WaitingJob) -> JobStart:
    gpu = device("cuda:0", environment={"CUDA_VISIBLE_DEVICES": "GPU-7", "OMP_NUM_THREADS": "2"})
    lease = make_leases(tmp_path, gpu).acquire()
    assert lease is not None
    return plan_start(waiting, lease)


def environment_of(start: JobStart) -> dict[str, str]:
    handle = script_executor(PRINT).submit(start)
    while handle.poll() is None:
        pass
    folder, environment = json.loads(start.log.read_text())
    assert folder == str(start.job.cwd)
    found: dict[str, str] = environment
    return found


def test_a_process_has_the_variables_of_its_device_and_its_job(tmp_path: Path) -> None:
    (waiting,) = waiting_jobs(tmp_path / "jobs", 1, parent=Parent("20261116-000000-abcd", "trial"))
    job = replace(waiting.job, environment={"OMP_NUM_THREADS": "5"})
    found = environment_of(start_of(tmp_path, replace(waiting, job=job)))
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-7"
    assert found["OMP_NUM_THREADS"] == "5"  # as it was when the job was submitted
    assert found["EPOCHAL_JOB_RUN_FILE"] == str(waiting.run_file)
    assert found["EPOCHAL_PARENT"] == "trial:20261116-000000-abcd"
    assert "EPOCHAL_RUN_FILE" not in found


def test_a_resumed_run_keeps_the_parent_that_it_has(tmp_path: Path) -> None:
    parent = Parent("20261116-000000-abcd", "trial")
    (waiting,) = waiting_jobs(tmp_path / "jobs", 1, parent=parent, resume=tmp_path)
    start = start_of(tmp_path, waiting)
    assert "EPOCHAL_PARENT" not in environment_of(start)
    assert format_job_command(start)[-2:] == ["--resume", str(tmp_path)]


def test_a_job_imports_the_epochal_of_its_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (waiting,) = waiting_jobs(tmp_path / "jobs", 1)
    monkeypatch.setattr(
        "epochal.launch.pool.local_executor.find_framework", lambda snapshot: tmp_path / "older"
    )
    monkeypatch.setenv("PYTHONPATH", "mine")
    assert environment_of(start_of(tmp_path, waiting))["PYTHONPATH"] == f"{tmp_path / 'older'}:mine"


def test_description_is_the_command_with_its_variables(tmp_path: Path) -> None:
    (waiting,) = waiting_jobs(tmp_path / "jobs", 1)
    text = LocalExecutor().describe(start_of(tmp_path, waiting))
    assert text == (
        f"CUDA_VISIBLE_DEVICES=GPU-7 OMP_NUM_THREADS=2 {sys.executable} -P -m epochal run-job "
        f"{waiting.file} --device cuda:0"
    )


FORKED = """
import os
words = open("/proc/self/cmdline").read().split("\\0")
print("forked" if "epochal.launch.fork_server" in words else "new", os.environ.get("COLOUR"))
"""


def end_of(handle: JobHandle) -> int:
    while (code := handle.poll()) is None:
        os.sched_yield()
    return code


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a fork server")
def test_jobs_that_differ_in_a_variable_share_no_server(
    own_modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = forking_executor(own_modules, FORKED)
    jobs = waiting_jobs(own_modules / "jobs", 4)
    starts = [start_of(own_modules / str(i), waiting) for i, waiting in enumerate(jobs)]
    colours, servers, handles = ("red", "red", "blue", "red"), [], []
    for start, colour in zip(starts, colours, strict=True):
        monkeypatch.setenv("COLOUR", colour)
        handles.append(executor.submit(start))
        servers.append(executor._servers[-1][1])
    assert [end_of(one) for one in handles] == [0] * 4
    assert [one.log.read_text() for one in starts] == [f"forked {one}\n" for one in colours]
    assert len(set(servers)) == 3
    assert servers[0] is servers[1]
    while not servers[0].has_ended():  # it had no more to do
        os.sched_yield()
    executor.close()
    assert not executor._servers
    assert end_of(executor.submit(starts[0])) == 0  # it can be used again
    executor.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a fork server")
def test_a_job_without_a_usable_server_is_a_new_process(own_modules: Path) -> None:
    executor = forking_executor(own_modules, FORKED, preloaded="raise RuntimeError")
    jobs = waiting_jobs(own_modules / "jobs", 3)
    first, second, third = (start_of(own_modules / one.file.stem, one) for one in jobs)
    for start in (first, second):
        assert end_of(executor.submit(start)) == 0
        assert start.log.read_text() == "new None\n"
    assert len(executor._servers) == 1  # none was started for the second
    executor.close()
    executor = forking_executor(own_modules, FORKED)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(end_of(executor.submit(third))))
    thread.start()
    thread.join()
    assert codes == [0]
    assert third.log.read_text() == "new None\n"  # its parent would be the main thread


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a fork server")
def test_a_job_can_be_stopped_and_killed_while_its_server_imports(own_modules: Path) -> None:
    gate = own_modules / "gate"
    os.mkfifo(gate)
    blocked = f"open({str(gate)!r}).read()"
    for verb in ("stop", "kill"):
        executor = forking_executor(
            own_modules, "import sys; open(f'started{sys.argv[1]}', 'w')", preloaded=blocked
        )
        first, second = waiting_jobs(own_modules / verb, 2)
        handle = executor.submit(start_of(own_modules / "1" / verb, first))
        assert handle.poll() is None, verb
        getattr(handle, verb)()
        assert handle.poll() == 75, verb
        getattr(handle, verb)()  # it has ended, so nothing happens
        other = executor.submit(start_of(own_modules / "2" / verb, second))
        gate.write_text("go")
        assert end_of(other) == 0, verb
        executor.close()
        started = [one.name for one in (own_modules / verb).glob("started*")]
        assert started == ["started2"], verb  # the server was asked for the first one before
