"""The queue, the devices, and stopping a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from comparing import make_run
from epochal import durable
from epochal.launch.queue.queue import Queue
from epochal.records.layout.process import describe_process
from pooled import waiting_jobs
from unit.web.conftest import RUNS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from browsing import Browser

NEW = "20261116-000000-abcd"


@pytest.fixture
def queue(runs: Path, tmp_path: Path) -> Queue:
    """A queue with three waiting jobs."""
    found = Queue(runs)
    found.add(waiting_jobs(tmp_path / "jobs", 3))
    return found


def order(answer) -> list[int]:
    return [job["id"] for job in answer["jobs"] if job["state"] == "waiting"]


def test_jobs_are_listed_and_reordered(browser: Browser, queue: Queue) -> None:
    seen = browser.get("/api/queue")
    assert order(seen) == [1, 2, 3]
    assert seen["is_paused"] is False
    assert seen["jobs"][0]["title"] == "1.yaml"
    assert not {"file", "seal", "environment", "run_dir", "log"} & seen["jobs"][0].keys()
    for path, body, expected in [
        ("top", {"ids": ["3"]}, [3, 1, 2]),
        ("remove", {"ids": ["1"]}, [3, 2]),
        ("pause", {}, [3, 2]),
    ]:
        done = browser.send("POST", f"/api/queue/{path}", body=body)
        assert (done.status, order(done.json)) == (200, expected), path
    assert browser.get("/api/queue")["is_paused"] is True
    assert browser.send("POST", "/api/queue/unpause", body={}).json["is_paused"] is False
    browser.send("POST", "/api/queue/pause", body={"ids": ["2"]})
    assert [job["is_paused"] for job in browser.get("/api/queue")["jobs"]][-1] is True


def test_wrong_jobs_change_nothing(browser: Browser, queue: Queue) -> None:
    for text in ("9", "0", "-1", "x", "", "1 OR 1", "1; DROP TABLE jobs", "\uff11"):
        for path in ("top", "remove", "pause"):
            done = browser.send("POST", f"/api/queue/{path}", body={"ids": [text]})
            assert done.status == 404, (path, text)
    browser.send("POST", "/api/queue/remove", body={"ids": ["1"]})
    again = browser.send("POST", "/api/queue/remove", body={"ids": ["1"]})
    assert again.status == 409
    assert order(browser.get("/api/queue")) == [2, 3]


def test_a_folder_without_a_queue_has_an_empty_one(browser: Browser) -> None:
    assert browser.get("/api/queue") == {"is_paused": False, "jobs": []}


def test_devices_show_memory_and_jobs(browser: Browser, queue: Queue) -> None:
    queue.update(2, ["waiting"], state="running", device="cpu")
    found = browser.get("/api/devices")
    cpu = found["devices"][-1]
    assert (cpu["name"], cpu["jobs"]) == ("cpu", [2])
    assert 0 < cpu["free"] <= cpu["total"]


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until it is told to end."""
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(99)"]) as found:
        yield found
        found.kill()


def write_status(folder: Path, **facts: object) -> None:
    status = {"status": "running", "step": 1, "epoch": 0, "attempt": 0, **facts}
    (folder / "status.json").write_bytes(durable.encode_json(status))


def test_a_run_is_stopped_by_a_signal(browser: Browser, runs: Path, process) -> None:
    folder = make_run(runs / "p" / "t" / NEW, status="running").path
    write_status(folder, **describe_process(process.pid))
    done = browser.send("POST", f"/api/runs/{NEW}/stop", body={})
    assert done.json == {"how": "signal"}
    assert process.wait(20) == -signal.SIGTERM


def test_a_queued_run_is_stopped_by_its_queue(browser: Browser, runs: Path, queue: Queue) -> None:
    folder = make_run(runs / "p" / "t" / NEW, status="running").path
    write_status(folder, **describe_process(os.getpid()))
    queue.update(1, ["waiting"], state="running", run_dir=str(folder))
    assert browser.send("POST", f"/api/runs/{NEW}/stop", body={}).json == {"how": "queue"}
    assert queue.get(1).is_unwanted


def test_only_the_process_of_a_run_is_stopped(
    browser: Browser, runs: Path, process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that others wrote may name any process."""
    folder = make_run(runs / "p" / "t" / NEW, status="running").path
    real = describe_process(process.pid)
    for facts, what in [
        ({"status": "finished"}, "the run is finished, so there is nothing to stop"),
        (real | {"process": ""}, "the process of the run is unknown"),
        (real | {"process": "boot:1"}, "the run is on"),
        (real | {"namespace": 1}, "the run is on"),
        (describe_process(1) | {"pid": 1}, "the process of the run is unknown"),
        (describe_process(os.getpid()), "the run is in the process of this server"),
    ]:
        write_status(folder, **facts)
        done = browser.send("POST", f"/api/runs/{NEW}/stop", body={})
        assert done.status == 409, facts
        assert what in done.what, facts
    write_status(folder, **real)
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    done = browser.send("POST", f"/api/runs/{NEW}/stop", body={})
    assert done.what == "the record belongs to another user"
    assert process.poll() is None
    assert browser.send("POST", f"/api/runs/{RUNS[0]}/stop", body={}).status == 409
