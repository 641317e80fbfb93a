"""The queue, the devices, and stopping a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from comparing import make_run
from epochal.launch.queue.queue import Queue
from epochal.launch.queue.worker import QueueBacklog
from epochal.records.layout.lease import holding_lease
from epochal.records.layout.process import host_name
from epochal.records.layout.stop_request import read_stop_request
from pooled import waiting_jobs
from unit.web.conftest import RUNS

if TYPE_CHECKING:
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


def test_a_job_whose_worker_was_killed_has_none(browser: Browser, queue: Queue) -> None:
    taken = QueueBacklog(queue).take()
    assert taken is not None
    assert taken.lock is not None
    for facts, has_worker in ((None, True), ({"pid": 2**30, "host": host_name()}, False)):
        if facts is not None:
            taken.lock.write(facts)
        first, *others = sorted(browser.get("/api/queue")["jobs"], key=lambda job: job["id"])
        assert (first["state"], first["has_worker"]) == ("running", has_worker)
        assert all(job["has_worker"] for job in others)
    taken.lock.release()


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


def test_a_job_says_which_other_folder_has_its_record(
    browser: Browser, runs: Path, tmp_path: Path
) -> None:
    queue = Queue(runs)
    queue.add(waiting_jobs(tmp_path / "jobs", 1), run_dir=tmp_path / "other" / "shop" / "a" / NEW)
    queue.add(waiting_jobs(tmp_path / "more", 1), run_dir=runs / "shop" / "a" / NEW)
    found = [(job["run"], job["elsewhere"]) for job in browser.get("/api/queue")["jobs"]]
    assert found == [(None, str(tmp_path / "other")), (NEW, None)]


def test_a_job_is_moved_before_another_one_or_last(browser: Browser, queue: Queue) -> None:
    queue.add(waiting_jobs(queue.runs_dir / "more", 1), priority=5)
    for job, before, expected in [
        ("3", "1", [4, 3, 1, 2]),
        ("3", None, [4, 1, 2, 3]),
        ("3", "4", [3, 4, 1, 2]),
        ("4", "2", [3, 1, 4, 2]),
        ("4", "4", [3, 1, 2, 4]),
    ]:
        done = browser.send("POST", "/api/queue/move", body={"id": job, "before": before})
        assert (done.status, order(done.json)) == (200, expected), (job, before)
    for body in ({"id": "9"}, {"id": "1", "before": "9"}, {"id": "1; DROP"}):
        assert browser.send("POST", "/api/queue/move", body=body).status == 404, body
    queue.update(1, ["waiting"], state="running")
    for body in ({"id": "1"}, {"id": "2", "before": "1"}):
        assert browser.send("POST", "/api/queue/move", body=body).status == 409, body


def test_the_run_of_a_job_is_known_as_soon_as_it_has_a_folder(
    browser: Browser, queue: Queue, runs: Path, tmp_path: Path
) -> None:
    queue.update(1, ["waiting"], state="running")
    job = queue.get(1)

    def shown() -> object:
        jobs = browser.get("/api/queue")["jobs"]
        return next(one["run"] for one in jobs if one["id"] == 1)

    assert shown() is None
    folder = make_run(runs / "p" / "t" / NEW, status="running").path
    job.file.with_suffix(".run").write_text(str(folder))
    assert shown() == NEW
    elsewhere = make_run(tmp_path / "other" / "p" / "t" / NEW).path
    job.file.with_suffix(".run").write_text(str(elsewhere))
    assert shown() is None, "this server does not show that folder"


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
    assert browser.get("/api/queue") == {"is_paused": False, "is_worked": False, "jobs": []}


def test_devices_show_memory_use_and_jobs(browser: Browser, queue: Queue) -> None:
    queue.update(2, ["waiting"], state="running", device="cpu")
    found = browser.get("/api/devices")
    cpu = found["devices"][-1]
    assert (cpu["name"], cpu["jobs"]) == ("cpu", [2])
    assert 0 < cpu["free"] <= cpu["total"]
    assert 0 <= cpu["use"] <= 100
    assert cpu["title"] == f"{cpu['cores']} cores"


def test_a_run_is_asked_to_stop(browser: Browser, runs: Path) -> None:
    """The run itself looks for the request, so no record can make the server signal a process."""
    folder = make_run(runs / "p" / "t" / NEW, status="running").path
    path = f"/api/runs/{NEW}/stop"
    done = browser.send("POST", path, body={})
    assert (done.status, done.what) == (409, "the run is not running, so there is nothing to stop")
    with holding_lease(folder):
        done = browser.send("POST", path, body={})
    assert done.json == {"within_seconds": 2.0}
    assert read_stop_request(folder) == "stop requested: on the web page"
    assert browser.send("POST", f"/api/runs/{RUNS[0]}/stop", body={}).status == 409
    assert browser.send("POST", "/api/runs/unknown/stop", body={}).status == 404
