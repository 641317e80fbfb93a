"""A page on another port attacks every route in a browser that is signed in: nothing happens."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from browser.generated_runs import BASE
from epochal.web.route_table import ROUTES

pytest.importorskip("playwright.sync_api")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page, Request, Response

    from browser.conftest import ServedRuns

VALUES = {"ids": [BASE], "add": ["stolen"], "archived": True, "text": "stolen", "name": "stolen"}
VALUES |= {
    "columns": ["stolen"],
    "rows": [],
    "version": 1,
    "trials": 1,
    "idempotency_key": "stolen",
}
SCRIPT = """async ([target, calls]) => {
  const read = [];
  const note = (what, text) => text && read.push(`${what}: ${String(text).slice(0, 80)}`);
  const attempt = async ([method, path, body]) => {
    const text = JSON.stringify(body);
    const hasBody = !["GET", "HEAD"].includes(method);
    for (const [mode, type] of [["cors", "text/plain"], ["cors", "application/json"], ["no-cors", "text/plain"]]) {
      const init = { method, mode, credentials: "include", body: hasBody ? text : undefined };
      if (hasBody) init.headers = { "content-type": type };
      try {
        note(`fetch ${method} ${path}`, await (await fetch(target + path, init)).text());
      } catch {}
    }
    if (!hasBody) return;
    navigator.sendBeacon(target + path, text);
    const form = document.createElement("form");
    Object.assign(form, { method: "post", action: target + path, target: "sink", enctype: "text/plain" });
    const input = document.createElement("input");
    const cut = Math.max(0, text.lastIndexOf('"')); // the form writes = there, inside of a string
    Object.assign(input, { name: text.slice(0, cut), value: text.slice(cut) });
    form.append(input);
    document.body.append(form);
    form.submit();
  };
  const load = (tag, set) => new Promise((done) => {
    const one = document.createElement(tag);
    one.onload = () => done(one);
    one.onerror = () => done(null);
    set(one);
    document.body.append(one);
  });
  document.body.innerHTML = "<iframe name=sink></iframe>";
  await Promise.all(calls.map(attempt));
  for (const path of ["/", "/icon.svg", "/api/runs", "/api/session", "/api/queue"]) {
    const image = await load("img", (one) => (one.src = target + path));
    note(`image ${path}`, image && image.width);
    note(`script ${path}`, await load("script", (one) => (one.src = target + path)) && "executed");
  }
  const frame = await load("iframe", (one) => (one.src = target + "/"));
  try { note("frame", frame.contentDocument.body.innerText); } catch {}
  await new Promise((done) => {
    const stream = new EventSource(target + "/api/events", { withCredentials: true });
    stream.addEventListener("runs", (event) => (note("stream", event.data), done()));
    stream.onerror = () => (stream.close(), done());
  });
  await new Promise((done) => {
    const socket = new WebSocket(target.replace("http", "ws") + "/api/events");
    socket.onopen = () => (note("socket", "open"), done());
    socket.onerror = () => done();
  });
  const opened = window.open(target + "/#/runs");
  await new Promise((done) => setTimeout(done, 500));
  try { note("window", opened.document.body.innerText); } catch {}
  return read;
}"""  # noqa: E501


class _EmptyPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>prizes</title><body>")

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def attacking() -> Iterator[int]:
    """The port of another site."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _EmptyPage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def read_files(root: Path) -> dict[str, bytes]:
    """Every file of the project but those that reading may change."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.name.startswith("index.")
    }


@pytest.fixture
def tolerated() -> list[str]:
    """The browser reports everything that it or the server refuses."""
    return [""]


def test_a_page_of_another_site_reads_and_changes_nothing(
    served: ServedRuns, open_page: Callable[..., Page], record_property: Callable[..., None]
) -> None:
    page = open_page(served, f"#/runs/{BASE}")
    page.get_by_role("heading", name="baseline").wait_for()
    before = read_files(served.root.parent)
    names = {"id": BASE, "name": "results", "file": "1", "item": "1"}
    calls = [
        (
            one.method,
            one.path.format(**names),
            {key.name: VALUES[key.name] for key in one.body if key.name in VALUES},
        )
        for one in ROUTES
        if "/api/" in one.path
    ]
    asked: list[tuple[str, str]] = []
    accepted: list[str] = []

    def count(request: Request) -> None:
        asked.append((request.method, request.url.removeprefix(served.address)))

    def note(answer: Response) -> None:
        if answer.url.startswith(f"{served.address}/api/") and answer.ok:
            accepted.append(answer.url)

    with attacking() as port:
        for host in ("127.0.0.1", "localhost"):  # the same site, which gets the cookie, and another
            page.goto(f"http://{host}:{port}/")
            page.on("request", count)
            page.on("response", note)
            assert page.evaluate(SCRIPT, [served.address, calls]) == []
            page.remove_listener("request", count)
            page.remove_listener("response", note)
    assert accepted == []
    assert {*asked} >= {call[:2] for call in calls}
    assert read_files(served.root.parent) == before
    page.goto(f"{served.address}/#/queue")
    page.get_by_text("The queue is empty").wait_for()  # and the session still works
    record_property("counted", f"{len(asked)} attacks of another site refused in a browser")
