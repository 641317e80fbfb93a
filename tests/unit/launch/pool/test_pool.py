"""A pool runs jobs at once, keeps failures apart, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal.errors import CANNOT_START_EXIT_CODE
from epochal.launch.pool.backlog import JobList
from epochal.launch.pool.pool import Pool
from epochal.launch.pool.run_jobs import find_last_line, keep_output, run_jobs
from pooled import (
    ScriptedExecutor,
    ScriptedHandle,
    device,
    forking_executor,
    make_leases,
    script_executor,
    waiting_jobs,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TESTS = Path(__file__).parents[3]


def make_pool(*parts: Any, **options: Any) -> Pool:
    return Pool(*parts, **options, tick_seconds=0.001)


def run_scripted(
    tmp_path: Path,
    codes: dict[int, int | None],
    *,
    count: int = 3,
    on_show: Callable[[Pool], None] = lambda pool: None,
    per_device: int = 2,
) -> tuple[Pool, JobList, ScriptedExecutor]:
    backlog = JobList(waiting_jobs(tmp_path / "jobs", count))
    executor = ScriptedExecutor(codes)
    leases = make_leases(tmp_path, per_device=per_device)
    pool = make_pool(backlog, executor, leases, show=on_show)
    pool.run()
    return pool, backlog, executor


def test_jobs_start_in_order_and_no_more_than_devices_allow(tmp_path: Path) -> None:
    most = []
    pool, backlog, executor = run_scripted(
        tmp_path, {}, count=5, on_show=lambda pool: most.append(len(pool.running))
    )
    assert [start.file.stem for start in executor.starts] == ["1", "2", "3", "4", "5"]
    assert max(most) == 2
    assert {key: end.code for key, end in backlog.ends.items()} == dict.fromkeys(range(1, 6), 0)
    assert pool.mode == "running"


def test_a_failure_does_not_touch_the_others(tmp_path: Path) -> None:
    _, backlog, _ = run_scripted(tmp_path, {1: 1, 2: -9, 3: 0})
    assert [backlog.ends[key].code for key in (1, 2, 3)] == [1, -9, 0]


def test_a_job_that_cannot_be_started_does_not_touch_the_others(tmp_path: Path) -> None:
    jobs = waiting_jobs(tmp_path / "jobs", 2)
    executor = ScriptedExecutor()
    submit = executor.submit

    def fail_first(start):
        if start.file.stem == "1":
            raise OSError("no such python")
        return submit(start)

    executor.submit = fail_first  # type: ignore[method-assign]
    backlog = JobList(jobs)
    make_pool(backlog, executor, make_leases(tmp_path)).run()
    assert [backlog.ends[key].code for key in (1, 2)] == [CANNOT_START_EXIT_CODE, 0]
    assert jobs[0].log.read_text() == "cannot be started: no such python\n"


def test_a_job_that_needs_more_devices_than_there_are_does_not_touch_the_others(
    tmp_path: Path,
) -> None:
    first, second = waiting_jobs(tmp_path / "jobs", 2)
    first = replace(first, job=replace(first.job, choices={"nproc": 2}))
    backlog, executor = JobList([first, second]), ScriptedExecutor()
    make_pool(backlog, executor, make_leases(tmp_path, device("cuda:0"))).run()
    assert {key: end.code for key, end in backlog.ends.items()} == {1: CANNOT_START_EXIT_CODE, 2: 0}
    assert first.log.read_text() == ("cannot be started: needs 2 GPUs, and the pool has 1\n")


def test_a_start_that_fails_later_does_not_touch_the_others(tmp_path: Path) -> None:
    class Failing(ScriptedHandle):
        def poll(self) -> int | None:
            raise OSError("too many processes")

    jobs, executor = waiting_jobs(tmp_path / "jobs", 2), ScriptedExecutor()
    submit = executor.submit
    executor.submit = lambda start: Failing(0) if start.file.stem == "1" else submit(start)  # type: ignore[method-assign]
    backlog = JobList(jobs)
    make_pool(backlog, executor, make_leases(tmp_path)).run()
    assert [backlog.ends[key].code for key in (1, 2)] == [CANNOT_START_EXIT_CODE, 0]
    assert jobs[0].log.read_text() == "cannot be started: too many processes\n"


def test_ctrl_c_once_lets_running_jobs_end_and_starts_no_more(tmp_path: Path) -> None:
    executor = ScriptedExecutor({1: None, 2: None})
    backlog = JobList(waiting_jobs(tmp_path / "jobs", 4))

    def interrupt(pool: Pool) -> None:
        if pool.mode == "running" and len(pool.running) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        elif pool.mode == "draining":
            executor.handles[1].code = executor.handles[2].code = 0

    pool = make_pool(backlog, executor, make_leases(tmp_path, per_device=2), show=interrupt)
    before = signal.getsignal(signal.SIGINT)
    pool.run()
    assert signal.getsignal(signal.SIGINT) is before
    assert [backlog.ends[key].code for key in (1, 2)] == [0, 0]
    assert backlog.count_waiting() == 2
    assert executor.handles[1].calls == []
    assert (pool.mode, pool.was_interrupted) == ("draining", True)


def test_ctrl_c_twice_stops_and_three_times_kills(tmp_path: Path) -> None:
    for presses, calls, code in ((2, ["stop"], 75), (3, ["stop", "kill"], -9)):
        executor = ScriptedExecutor({1: None})
        backlog = JobList(waiting_jobs(tmp_path / str(presses), 2))

        def interrupt(
            pool: Pool,
            presses: int = presses,
            executor: ScriptedExecutor = executor,
            pressed: list[str] = [],  # noqa: B006 - one for each row
        ) -> None:
            handle = executor.handles.get(1)
            if handle is not None and presses == 3 and handle.calls == ["stop"]:
                handle.code = None  # it does not obey
            if pool.running and len(pressed) < presses:
                pressed.append(pool.mode)
                os.kill(os.getpid(), signal.SIGINT)

        pool = make_pool(backlog, executor, make_leases(tmp_path), show=interrupt)
        pool.run()
        assert executor.handles[1].calls[: len(calls)] == calls, presses
        assert backlog.ends[1].code == code, presses
        assert backlog.ends[1].was_stopped, presses
        assert backlog.count_waiting() == 1, presses


def test_sigterm_stops_the_pool(tmp_path: Path) -> None:
    def stop(pool: Pool) -> None:
        if pool.running and pool.mode == "running":
            os.kill(os.getpid(), signal.SIGTERM)

    pool, backlog, executor = run_scripted(tmp_path, {1: None}, count=1, on_show=stop)
    assert (pool.mode, pool.was_interrupted) == ("stopping", False)
    assert executor.handles[1].calls == ["stop"]
    assert backlog.ends[1].code == 75


def test_sigterm_again_kills_but_not_in_the_same_moment(tmp_path: Path) -> None:
    now, pause = [0.0], [0.0]

    def stop(pool: Pool) -> None:
        if pool.running and pool.mode == "running":
            os.kill(os.getpid(), signal.SIGTERM)
            now[0] += pause[0]
            os.kill(os.getpid(), signal.SIGTERM)

    # A killed parent with threads sends several at once: the jobs must still save.
    for pause[0], calls in ((0.01, ["stop"]), (1.0, ["kill"])):
        backlog = JobList(waiting_jobs(tmp_path / f"jobs{pause[0]}", 1))
        executor = ScriptedExecutor({1: None})
        leases = make_leases(tmp_path)
        make_pool(backlog, executor, leases, show=stop, clock=lambda: now[0]).run()
        assert executor.handles[1].calls == calls, pause


def test_an_error_of_the_pool_kills_its_jobs(tmp_path: Path) -> None:
    def fail(pool: Pool) -> None:
        if pool.running:
            raise RuntimeError("the terminal is gone")

    executor = ScriptedExecutor({1: None})
    leases = make_leases(tmp_path)
    pool = make_pool(JobList(waiting_jobs(tmp_path / "jobs", 1)), executor, leases, show=fail)
    with pytest.raises(RuntimeError, match="the terminal is gone"):
        pool.run()
    assert executor.handles[1].calls == ["kill"]
    assert leases.acquire() is not None


def test_a_job_runs_on_its_preferred_device(tmp_path: Path) -> None:
    jobs = waiting_jobs(tmp_path / "jobs", 3, preferred="b")
    executor = ScriptedExecutor({1: None, 2: None, 3: None})
    leases = make_leases(tmp_path, device("a"), device("b"))
    pool = make_pool(JobList(jobs), executor, leases, show=lambda pool: pool.advance("stopping"))
    pool.run()
    assert [start.device.name for start in executor.starts] == ["b", "a"]


SCRIPT = """
import os, sys
number = int(sys.argv[1])
print("job", number, flush=True)
folder = os.path.join(os.getcwd(), f"run{number}")
os.makedirs(os.path.join(folder, "logs"))
open(os.environ["EPOCHAL_JOB_RUN_FILE"], "w").write(folder)
sys.exit({2: 3}.get(number, 0))
"""


def test_each_process_has_its_own_log_and_folder(tmp_path: Path) -> None:
    jobs = waiting_jobs(tmp_path / "jobs", 3)
    result = run_jobs(
        jobs, script_executor(SCRIPT), make_leases(tmp_path, per_device=3), show=lambda pool: None
    )
    assert [result.ends[key].code for key in (1, 2, 3)] == [0, 3, 0]
    assert result.exit_code == 3
    for number in (1, 2, 3):
        folder = tmp_path / "jobs" / f"run{number}"
        assert result.ends[number].run_dir == folder


def test_output_goes_to_the_run_and_that_of_other_failures_stays(tmp_path: Path) -> None:
    batch = tmp_path / "batch"
    jobs = waiting_jobs(batch, 2)
    script = "import sys; print('lost words'); sys.exit(int(sys.argv[1]) - 1)"
    run_jobs(jobs, script_executor(script), make_leases(tmp_path))
    assert [path.name for path in batch.iterdir()] == ["2.log"]
    assert jobs[1].log.read_text() == "lost words\n"
    run_dir = tmp_path / "run"
    (run_dir / "logs").mkdir(parents=True)
    (run_dir / "logs" / "output.log").write_text("of an earlier start")
    assert keep_output(jobs[1].log, run_dir) == run_dir / "logs" / "output.1.log"
    assert keep_output(jobs[1].log, None) == jobs[1].log


def test_nothing_is_left_of_jobs_that_succeeded(tmp_path: Path) -> None:
    batch = tmp_path / "batch"
    run_jobs(waiting_jobs(batch, 2), script_executor("pass"), make_leases(tmp_path))
    assert not batch.exists()


GRANDCHILD = """
import os, signal, sys
pipe = os.open(sys.argv[2], os.O_WRONLY)
if os.fork() == 0: signal.pause()
os.write(pipe, b"left")
"""


@pytest.mark.parametrize("start", ["new", "forked"])
def test_processes_that_a_job_leaves_behind_are_killed(
    tmp_path: Path, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    leases = make_leases(tmp_path)
    backlog = JobList(waiting_jobs(tmp_path / "jobs", 1))
    executor = script_executor(GRANDCHILD, str(pipe))
    if start == "forked":
        executor = forking_executor(tmp_path, GRANDCHILD, str(pipe))
    make_pool(backlog, executor, leases).run()
    os.set_blocking(heard, True)
    assert os.read(heard, 4) == b"left"
    assert os.read(heard, 1) == b""  # nothing holds the pipe any more
    os.close(heard)
    assert leases.acquire() is not None


OWNER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from pooled import forking_executor, make_leases, script_executor, waiting_jobs
from epochal.launch.pool.backlog import JobList
from epochal.launch.pool.pool import Pool
folder = Path(sys.argv[1])
script = '''
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: (os.write(fd, b"saved "), sys.exit(75)))
fd = os.open(sys.argv[2], os.O_WRONLY)
os.write(fd, b"ready ")
while True: signal.pause()
'''
executor = script_executor(script, str(folder / "pipe"))
if sys.argv[3] == "forked":
    executor = forking_executor(folder, script, str(folder / "pipe"))
leases = make_leases(folder, per_device=2)
Pool(JobList(waiting_jobs(folder / "jobs", 2)), executor, leases).run()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
@pytest.mark.parametrize("start", ["new", "forked"])
def test_a_killed_pool_leaves_no_process_and_its_leases_are_recovered(
    tmp_path: Path, start: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path), str(TESTS), start])
    with (tmp_path / "pipe").open("rb", buffering=0) as heard:
        text = b""
        while text.count(b"ready ") < 2:
            text += heard.read(6)
        leases = make_leases(tmp_path, per_device=2)
        assert leases.acquire() is None
        owner.send_signal(signal.SIGKILL)
        assert owner.wait() == -signal.SIGKILL
        while text.count(b"saved ") < 2:
            text += heard.read(6)
        assert heard.read(1) == b""  # both have ended: nothing holds the pipe any more
    assert leases.acquire() is not None
    assert leases.acquire() is not None


def test_the_reason_of_a_failure_is_the_message_in_its_box(tmp_path: Path) -> None:
    box = "╭─ run failed: LeaseLostError ─╮\n{}╰──────────────────────────────╯\n"
    text = "│ runs/a: the folder of the    │\n│ run was deleted or moved     │\n"
    hint = "│   this process stopped       │\n"
    rows = (
        ("plain\nlast line\n\n---\n", "last line"),
        (f"noise\n{box.format(text + hint)}", "runs/a: the folder of the run was deleted or moved"),
        (f"{box.format(text)}later\n", "later"),
    )
    log = tmp_path / "1.log"
    for written, found in rows:
        log.write_text(written)
        assert find_last_line(log) == found, written
    assert find_last_line(tmp_path / "missing") == ""
