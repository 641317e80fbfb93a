"""Every route, method and credential gets the answer that the table says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from browsing import Browser
from epochal.web.app import WebApp
from epochal.web.route_table import ROUTES
from epochal.web.site.route import ApiRoute

if TYPE_CHECKING:
    from pathlib import Path

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")

EXPECTED = {
    ("POST", "/api/session"): "public",
    ("GET", "/api/session"): "read",
    ("DELETE", "/api/session"): "read",
    ("GET", "/api/openapi.json"): "read",
    ("GET", "/api/columns"): "read",
    ("GET", "/api/runs"): "read",
    ("GET", "/api/runs/{id}"): "read",
    ("GET", "/api/runs/{id}/series"): "read",
    ("GET", "/api/series"): "read",
    ("GET", "/api/sparklines"): "read",
    ("GET", "/api/runs/{id}/config"): "read",
    ("GET", "/api/runs/{id}/code"): "read",
    ("GET", "/api/runs/{id}/code/{file}"): "read",
    ("GET", "/api/runs/{id}/log"): "read",
    ("GET", "/api/runs/{id}/log/search"): "read",
    ("GET", "/api/runs/{id}/media"): "read",
    ("GET", "/api/media/{id}/{item}"): "read",
    ("GET", "/api/runs/{id}/checkpoints"): "read",
    ("GET", "/api/runs/{id}/time"): "read",
    ("GET", "/api/runs/{id}/system"): "read",
    ("GET", "/api/compare"): "read",
    ("GET", "/api/events"): "read",
    ("GET", "/api/mail"): "read",
    ("POST", "/api/mail/read"): "edit",
    ("PUT", "/api/runs/{id}/readme"): "edit",
    ("POST", "/api/runs/label"): "edit",
    ("POST", "/api/runs/archive"): "edit",
    ("POST", "/api/runs/delete"): "edit",
    ("GET", "/api/tables"): "read",
    ("POST", "/api/tables"): "edit",
    ("GET", "/api/tables/{name}"): "read",
    ("PUT", "/api/tables/{name}"): "edit",
    ("DELETE", "/api/tables/{name}"): "edit",
    ("GET", "/api/tables/{name}/export"): "read",
    ("GET", "/api/queue"): "read",
    ("POST", "/api/queue/top"): "launch",
    ("POST", "/api/queue/remove"): "launch",
    ("POST", "/api/queue/pause"): "launch",
    ("POST", "/api/queue/unpause"): "launch",
    ("GET", "/api/devices"): "read",
    ("POST", "/api/runs/{id}/stop"): "launch",
    ("GET", "/api/sweeps"): "read",
    ("GET", "/api/sweeps/{id}"): "read",
    ("GET", "/api/experiments"): "launch",
    ("GET", "/api/experiments/{id}/form"): "launch",
    ("POST", "/api/experiments/{id}/check"): "launch",
    ("POST", "/api/experiments/{id}/launch"): "launch",
    ("GET", "/api/runs/{id}/form"): "launch",
    ("POST", "/api/runs/{id}/check"): "launch",
    ("POST", "/api/runs/{id}/rerun"): "launch",
    ("POST", "/api/runs/{id}/resume"): "launch",
    ("GET", "/api/runs/{id}/download"): "read",
    ("GET", "/api/runs/{id}/checkpoints/{name}/weights"): "read",
    ("GET", "/api/compare/metrics"): "read",
    ("GET", "/api/compare/scatter"): "read",
    ("POST", "/api/sweeps/{id}/stop"): "launch",
    ("POST", "/api/sweeps/{id}/add"): "launch",
    ("POST", "/api/queue/move"): "launch",
    ("GET", "/assets/{name}"): "public",
    ("GET", "/"): "public",
    ("GET", "/{page}"): "public",
    ("GET", "/{page}/{id}"): "public",
    ("GET", "/{page}/{id}/{part}"): "public",
}
"""Who may call what, decided by a person: a new route needs a new row here."""


def test_every_route_has_a_row_that_a_person_wrote() -> None:
    assert {(row.method, row.path): row.access for row in ROUTES} == EXPECTED


def address(path: str) -> str:
    return path.replace("{", "").replace("}", "")


def test_nothing_but_public_pages_answers_without_a_session(runs: Path) -> None:
    """The bodies are the same for what exists and what does not."""
    browser = Browser(runs)
    paths = [*(path for _, path in EXPECTED), "/api", "/api/x", "/api/runs/x/y/z", "/docs/a/b/c"]
    for cookie in ("", "wrong", "x" * 4000):
        browser.cookie = cookie
        for path in paths:
            for method in METHODS:
                done = browser.send(method, address(path), body={})
                is_public = EXPECTED.get((method, path)) == "public"
                case = (cookie[:5], method, path, done.status)
                if not is_public:
                    assert done.status == 401, case
                    assert done.what == "not signed in", case
                else:
                    assert done.status in (200, 404, 422), case
    browser.close()


def test_capabilities_are_required(runs: Path) -> None:
    """Handlers are replaced, so that only the decision is tested."""
    for own in ((), ("read",), ("read", "edit"), ("read", "edit", "launch")):
        browser = Browser(runs, capabilities=own)
        extra = ApiRoute(
            method="POST",
            path="/api/launch",
            access="launch",
            answer=lambda site, call: {},
            summary="",
        )
        plain = [
            ApiRoute(
                method=row.method,
                path=row.path,
                access=row.access,
                answer=lambda site, call: {"done": True},
                summary="",
            )
            for row in ROUTES
            if row.path != "/api/session"
        ]
        browser.sign_in()
        browser.app = WebApp(browser.site, [*plain, extra])
        for row in [*plain, extra]:
            for method in METHODS:
                done = browser.send(method, address(row.path), body={})
                known = {one.access for one in (*plain, extra) if fits(one, method, row.path)}
                case = (own, method, row.path)
                if not known:
                    assert done.status == 405, case
                elif known == {"public"} or known <= {*own}:
                    assert done.status == 200, case
                else:
                    assert done.status == 403, case
        browser.close()


def fits(row: ApiRoute, method: str, path: str) -> bool:
    segments = address(path).strip("/").split("/") if path != "/" else []
    return row.method == method and row.match(segments) is not None


def test_unknown_addresses_are_not_found_for_those_who_signed_in(browser: Browser) -> None:
    for path in ("/api", "/api/", "/api/x", "/api/runs/", "/a/b/c/d", "/assets", "/api/runs//log"):
        assert browser.send("GET", path).status == 404, path


def test_web_sockets_are_refused() -> None:
    import asyncio

    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message) -> None:
        sent.append(message)

    app = WebApp(None)  # type: ignore[arg-type]  # nothing of the server is used
    asyncio.run(app({"type": "websocket", "path": "/api/events", "headers": []}, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
