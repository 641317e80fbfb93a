"""Who owns a run: processes that hold a lease, are stopped, killed, or in another container."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal.errors import RecordError
from epochal.records.find import read_run
from epochal.records.layout.lease import HEARTBEAT_FILE, LEASE_FILE, Lease

if TYPE_CHECKING:
    from collections.abc import Iterator

OWNER = """
import os, sys
from pathlib import Path
from epochal import durable
from epochal.records.layout.lease import Lease
from epochal.records.layout.process import describe_process

folder = Path(sys.argv[1])
lease = Lease(folder)
durable.write_json(folder / "heartbeat.json", {"beat_seconds": 15.0})
durable.write_json(folder / "run.json", {})
durable.write_json(folder / "status.json", {"status": "running", **describe_process(os.getpid())})
if os.fork() == 0:
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)
sys.stdin.read()
os._exit(9)
"""
TORTURE_RUNS = 200
NAMESPACE = ("unshare", "-Urpf", "--mount-proc", "--kill-child")


@contextmanager
def owning(folder: Path, *wrapper: str) -> Iterator[subprocess.Popen[str]]:
    """A process that works on a folder, with a forked worker; killed at the end, without release.

    The worker outlives it until the block ends.
    """
    words = [*wrapper, sys.executable, "-c", OWNER, str(folder)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline(), "it could not take the lease"
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.stdin.close()


def state(folder: Path) -> tuple[str, bool]:
    """The status that `epochal runs` shows, and whether another process may take the run."""
    shown = read_run(folder).summary.status
    try:
        Lease(folder).release()
    except RecordError:
        return shown, False
    return shown, True


def set_age(folder: Path, seconds: float) -> None:
    for name in (HEARTBEAT_FILE, LEASE_FILE, "status.json"):
        moment = (folder / name).stat().st_mtime - seconds
        os.utime(folder / name, (moment, moment))


def test_a_living_process_owns_its_run_whatever_the_clock_says(tmp_path: Path) -> None:
    with owning(tmp_path) as process:
        assert state(tmp_path) == ("running", False)
        set_age(tmp_path, 86400)  # no sign of life for long
        assert state(tmp_path) == ("running", False)
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert state(tmp_path) == ("running", False)
        set_age(tmp_path, -2 * 86400)  # the clock was set back
        assert state(tmp_path) == ("running", False)


def test_a_killed_process_owns_nothing_although_its_worker_lives(tmp_path: Path) -> None:
    for age in (0, -86400):  # fresh signs of life; a clock that was set back
        with owning(tmp_path) as process:
            set_age(tmp_path, age)
            process.kill()
            process.wait()
            assert state(tmp_path) == ("lost", True), age


@pytest.fixture(scope="module")
def namespace() -> tuple[str, ...]:
    """Words that start a command in a process namespace of its own, under the same host name."""
    if shutil.which(NAMESPACE[0]) is None:
        pytest.skip("there is no command `unshare`")
    done = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the kernel forbids new namespaces: {done.stderr.strip()}")
    return NAMESPACE


def test_a_run_in_another_container_is_running_until_its_process_dies(
    tmp_path: Path, namespace: tuple[str, ...]
) -> None:
    with owning(tmp_path, *namespace) as process:
        assert state(tmp_path) == ("running", False)
        with pytest.raises(
            RecordError, match=f"if that process has certainly ended, delete {tmp_path}"
        ):
            Lease(tmp_path)
        set_age(tmp_path, 86400)
        assert state(tmp_path) == ("running", False)
        # The process is a child of `unshare`, which waits for it.
        (inner,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(inner), signal.SIGKILL)
        process.wait()
        assert state(tmp_path) == ("lost", True)


def test_without_locks_a_fresh_heartbeat_means_that_another_container_is_alive(
    tmp_path: Path, namespace: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no locks available")

    with owning(tmp_path, *namespace):
        monkeypatch.setattr("fcntl.flock", refuse)
        assert state(tmp_path) == ("running", False)
        set_age(tmp_path, 600)
        assert state(tmp_path) == ("lost", True)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_many_runs_in_two_namespaces_have_one_owner(
    tmp_path: Path, namespace: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    seen: Counter[tuple[str, bool]] = Counter()
    for number in range(TORTURE_RUNS):
        folder = tmp_path / str(number)
        folder.mkdir()
        with owning(folder, *namespace) as process:
            seen[state(folder)] += 1
            inner = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]
            os.kill(int(inner), signal.SIGKILL)
            process.wait()
        seen[state(folder)] += 1
    with capsys.disabled():
        text = f"\n{TORTURE_RUNS} runs in two PID namespaces: {dict(seen)}"
        print(text)  # noqa: T201 - the count
    assert seen == {("running", False): TORTURE_RUNS, ("lost", True): TORTURE_RUNS}
