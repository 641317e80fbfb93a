"""Events: new points only, and exactly what a browser missed when it reconnects."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from comparing import make_run
from epochal.launch.queue.queue import Queue
from epochal.records.mail.mailbox import Mail, Mailbox
from epochal.records.metrics.points import MetricWriter
from epochal.web.api.live_events import LiveWatch, open_events
from epochal.web.site.route import ApiCall
from unit.web.conftest import RUNS

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from browsing import Browser


def points_of(events) -> dict[str, list[float]]:
    return {value["name"]: value["y"] for name, value in events if name == "points"}


def log_points(folder: Path, step: int, **points: float) -> None:
    writer = MetricWriter(folder)
    writer.log(points, step)
    writer.close()


def test_only_new_points_are_sent(browser: Browser, runs: Path) -> None:
    folder = runs / "shop" / "t" / RUNS[0]
    watch = LiveWatch(browser.site, [RUNS[0], "unknown"])
    assert dict(watch.start()) == {"runs": {"changed": [], "total": 3}, "mail": {"unread": 0}}
    assert watch.poll() == []
    log_points(folder, 10, loss=0.5, acc=1.0)
    log_points(folder, 11, loss=float("nan"))
    events = watch.poll()
    assert points_of(events) == {"loss": [0.5, None], "acc": [1.0]}
    first = next(value for name, value in events if name == "points")
    assert (first["run"], first["x"], first["attempt"]) == (RUNS[0], [10, 11], 0)
    size = len(json.dumps(events))
    log_points(folder, 12, loss=0.25)
    events = watch.poll()
    assert points_of(events) == {"loss": [0.25]}
    assert len(json.dumps(events)) < size


def test_a_browser_that_reconnects_gets_what_it_missed(browser: Browser, runs: Path) -> None:
    folder = runs / "shop" / "t" / RUNS[0]
    watch = LiveWatch(browser.site, [RUNS[0]])
    watch.start()
    log_points(folder, 10, loss=1.0)
    watch.poll()
    position = watch.position
    log_points(folder, 11, loss=2.0)
    make_run(runs / "shop" / "t" / "20261116-000000-abcd")
    again = LiveWatch(browser.site, [RUNS[0]], position)
    events = again.start()
    assert points_of(events) == {"loss": [2.0]}
    assert set(dict(events)["runs"]["changed"]) >= {"20261116-000000-abcd"}
    other_server = "0000.5." + position.rpartition(".")[2]
    events = LiveWatch(browser.site, [RUNS[0]], other_server).start()
    assert dict(events)["runs"]["changed"] is None
    assert points_of(events) == {"loss": [2.0]}
    for odd in ("", "x", "...", "1.2.3.4.5", f"{position}.1", "9" * 500):
        assert points_of(LiveWatch(browser.site, [RUNS[0]], odd).start()) == {}, odd


def test_changed_runs_growing_logs_and_mail_are_reported(browser: Browser, runs: Path) -> None:
    folder = runs / "shop" / "t" / RUNS[1]
    watch = LiveWatch(browser.site, [RUNS[1]])
    watch.start()
    with (folder / "logs" / "run.log").open("a") as file:
        file.write("one more\n")
    (folder / "README.md").write_text("# renamed\n")
    mail = Mail(id="abc", kind="failed", subject="s", text="t", time="2026-11-14T10:00:00+00:00")
    Mailbox(runs).post(mail)
    Queue(runs).set_paused(True)
    events = dict(watch.poll())
    assert events["queue"] == {}
    assert events["log"] == {"run": RUNS[1], "size": (folder / "logs" / "run.log").stat().st_size}
    assert events["runs"] == {"changed": [RUNS[1]], "total": 3}
    assert events["mail"] == {"unread": 1}


def test_the_log_of_a_run_is_followed_only_if_no_other_run_is(browser: Browser, runs: Path) -> None:
    watch = LiveWatch(browser.site, [RUNS[0], RUNS[1]])
    watch.start()
    folder = runs / "shop" / "t" / RUNS[1]
    with (folder / "logs" / "run.log").open("a") as file:
        file.write("one more\n")
    log_points(folder, 10, loss=1.0)
    events = dict(watch.poll())
    assert events["points"]["run"] == RUNS[1]
    assert "log" not in events


def test_stream_ends_with_the_browser(browser: Browser, runs: Path) -> None:
    """The application is called as a server would, and the browser leaves after two events."""
    headers = [(name.encode(), value.encode()) for name, value in browser.headers("GET")]
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/events",
        "raw_path": b"/api/events",
        "query_string": f"run={RUNS[0]}".encode(),
        "headers": headers,
    }
    sent: list[dict] = []

    async def play() -> None:
        is_over = asyncio.Event()

        async def receive():
            await is_over.wait()
            return {"type": "http.disconnect"}

        async def send(message) -> None:
            sent.append(message)
            if len(sent) == 2:
                log_points(runs / "shop" / "t" / RUNS[0], 10, loss=1.0)
            if b"event: points" in message.get("body", b""):
                is_over.set()

        await asyncio.wait_for(browser.app(scope, receive, send), 30)

    browser.runner.run(play())
    assert dict(sent[0]["headers"])[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert sent[1]["body"].startswith(b"retry: 2000\nevent: runs\n")
    text = b"".join(one["body"] for one in sent[1:]).decode()
    assert '"name":"loss"' in text
    assert text.count("\nid: ") >= 2
    assert not browser.app._streams
    assert browser.app._num_requests == 0


def test_stream_ends_when_its_session_is_closed(browser: Browser) -> None:
    session = browser.site.sessions.find(browser.cookie)
    assert session is not None
    stream = open_events(browser.site, ApiCall({}, {"run": []}, {}, session))

    async def play() -> list[str]:
        first = await anext(stream.parts)
        browser.site.sessions.close(session)
        return [first, *[part async for part in stream.parts]]

    found = browser.runner.run(play())
    assert len(found) == 1


def test_streams_are_limited(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epochal.web.app.MAX_STREAMS", 0)
    assert browser.send("GET", "/api/events").status == 429
    browser.app._num_requests = 10_000
    assert browser.send("GET", "/api/runs").status == 429


def test_events_need_a_session(stranger: Browser) -> None:
    assert stranger.send("GET", "/api/events").status == 401
