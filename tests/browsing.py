"""A server in this process without a network, and requests as a browser would send them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from epochal.web.app import WebApp
from epochal.web.site.run_index import RunIndex
from epochal.web.site.sessions import WebSessions
from epochal.web.site.site import Site
from epochal.web.site.static_files import StaticFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

PORT = 8765
HOST = f"127.0.0.1:{PORT}"
ORIGIN = f"http://{HOST}"
COOKIE = f"epochal-{PORT}"


@dataclass
class Reply:
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes
    header_list: list[tuple[str, str]] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def what(self) -> str:
        return str(self.json["error"]["what"])


def request(
    app: WebApp,
    runner: asyncio.Runner,
    method: str,
    path: str,
    *,
    headers: Iterable[tuple[str, str]] = (),
    body: bytes = b"",
    query: bytes = b"",
) -> Reply:
    """One request with exactly these headers."""
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode("latin-1"),
        "query_string": query,
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
    }
    sent: list[dict[str, Any]] = []
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    runner.run(app(scope, receive, send))
    pairs = [(name.decode(), value.decode("latin-1")) for name, value in sent[0]["headers"]]
    content = b"".join(one.get("body", b"") for one in sent[1:])
    return Reply(sent[0]["status"], dict(pairs), content, pairs)


class Browser:
    """A browser that has opened the page of a server, or not.

    Args:
        runs: The folder of the runs.
        capabilities: What its session may do.
        static: The folder of the built page.
        is_fresh: Whether the index is refreshed before every answer, and not only once.
    """

    def __init__(
        self,
        runs: Path,
        *,
        capabilities: Sequence[Any] = ("read", "edit", "launch"),
        static: Path | None = None,
        is_fresh: bool = True,
    ) -> None:
        self.runner = asyncio.Runner()
        self.codes: list[str] = []
        self.site = Site(
            index=RunIndex(runs, min_seconds=0 if is_fresh else 1e9, patience_seconds=None),
            sessions=WebSessions(tuple(capabilities), self.codes.append),
            static=StaticFiles() if static is None else StaticFiles(static),
            hosts=frozenset({HOST, f"localhost:{PORT}", f"[::1]:{PORT}"}),
            port=PORT,
            project="shop",
            version="1",
        )
        self.app = WebApp(self.site)
        self.cookie = ""
        self.csrf = ""

    def sign_in(self) -> Reply:
        """Use the newest code, as the page does."""
        done = self.send("POST", "/api/session", body={"code": self.codes[-1]})
        self.cookie = done.headers["set-cookie"].partition(";")[0].partition("=")[2]
        self.csrf = done.json["csrf"]
        return done

    def headers(self, method: str, **changes: str | None) -> list[tuple[str, str]]:
        """The headers of a request from the page itself; ``None`` leaves one out."""
        found: dict[str, str | None] = {"host": HOST, "sec-fetch-site": "same-origin"}
        if self.cookie:
            found["cookie"] = f"{COOKIE}={self.cookie}"
        if method != "GET":
            found |= {"origin": ORIGIN, "content-type": "application/json"}
            found["x-epochal-csrf"] = self.csrf
        found |= {name.replace("_", "-"): value for name, value in changes.items()}
        return [(name, value) for name, value in found.items() if value is not None]

    def send(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, Any] | None = None,
        **changes: str | None,
    ) -> Reply:
        """A request from the page itself, with changed headers."""
        data = b"" if body is None else json.dumps(body).encode()
        text = urlencode(query or {}, doseq=True).encode()
        return self.request(
            method, path, headers=self.headers(method, **changes), body=data, query=text
        )

    def request(self, method: str, path: str, **parts: Any) -> Reply:
        """A request with exactly these headers and this body."""
        return request(self.app, self.runner, method, path, **parts)

    def get(self, path: str, **query: Any) -> Any:
        """The JSON of a successful GET."""
        done = self.send("GET", path, query=query)
        assert done.status == 200, (path, done.body)
        return done.json

    def close(self) -> None:
        self.site.index.close()
        self.runner.close()
