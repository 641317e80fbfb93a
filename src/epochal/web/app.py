"""The ASGI application: one outermost layer checks every request, then one function answers.

There is no second router behind it: the row that is checked is the row that answers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.errors import EpochalError
from epochal.web.checks import (
    CSRF_HEADER,
    HEADERS,
    SAFE_METHODS,
    Headers,
    check_content,
    check_host,
    check_origin,
    split_path,
    split_query,
)
from epochal.web.route_table import ROUTES
from epochal.web.site.api_error import ApiError, not_found, to_api_error
from epochal.web.site.route import (
    ApiCall,
    ApiRoute,
    EventStream,
    FileAnswer,
    JsonAnswer,
    RawAnswer,
    read_body,
    read_query,
)
from epochal.web.site.sessions import is_forged

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Mapping,
        MutableMapping,
        Sequence,
    )

    from epochal.web.site.route import Capability
    from epochal.web.site.sessions import WebSession
    from epochal.web.site.site import Site

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

MAX_BODY_BYTES = 1 << 20
MAX_REQUESTS = 64
MAX_STREAMS = 32
MAX_THREADS = 8
"""How many requests are answered at once; the others wait."""

_PIECE_BYTES = 1 << 20

MAX_SECONDS = 10.0
"""How long an answer may take; event streams have no limit."""

logger = logging.getLogger(__name__)


@final
class WebApp:
    """Answers the requests of browsers about one folder of runs."""

    def __init__(self, site: Site, routes: Sequence[ApiRoute] = ROUTES) -> None:
        self.site, self.routes = site, tuple(routes)
        self._threads = ThreadPoolExecutor(MAX_THREADS, "epochal-answer")
        self._num_requests = 0
        self._streams: set[asyncio.Future[None]] = set()
        """The open event streams; each ends when its future does."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; anything but HTTP is refused."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        if scope["type"] != "http":
            return
        self._num_requests += 1
        try:
            answer = await self._respond(scope, receive)
            if isinstance(answer, FileAnswer):
                await _send_file(answer, send)
            elif isinstance(answer, EventStream):
                self._num_requests -= 1  # streams have a limit of their own
                try:
                    await self._stream(answer.parts, receive, send)
                finally:
                    self._num_requests += 1
            else:
                await _send_answer(answer, send)
        finally:
            self._num_requests -= 1

    async def _respond(
        self, scope: Scope, receive: Receive
    ) -> RawAnswer | FileAnswer | EventStream:
        try:
            if self._num_requests > MAX_REQUESTS:
                raise ApiError(429, "too many requests at once", "try again in a second")
            async with asyncio.timeout(MAX_SECONDS):
                return _encode(await self._answer(scope, receive))
        except ApiError as error:
            return _encode_error(error)
        except TimeoutError:
            return _encode_error(ApiError(503, "the answer took too long", "ask for less"))
        except Exception:
            logger.exception("a request failed: %s", scope["method"])
            what, hint = "the server failed", "the terminal of `epochal serve` shows why"
            return _encode_error(ApiError(500, what, hint))

    async def _answer(self, scope: Scope, receive: Receive) -> object:
        headers = Headers.of(scope["headers"])
        method = scope["method"]
        host = check_host(headers, self.site.hosts)
        segments = split_path(scope["raw_path"].partition(b"?")[0])
        matches = [
            (row, found) for row in self.routes if (found := row.match(segments)) is not None
        ]
        is_page = bool(matches) and all(row.is_page for row, _ in matches)
        check_origin(headers, method, host, is_page=is_page)
        session = self.site.sessions.find(headers.cookie(self.site.cookie_name))
        own = [(row, found) for row, found in matches if row.method == method]
        if session is None and not (own and own[0][0].access == "public"):
            raise ApiError(401, "not signed in", "open the link that `epochal serve` printed")
        if not matches:
            raise not_found()
        if not own:
            raise ApiError(405, f"{method[:10]} is not possible here")
        row, path = own[0]
        _check_access(row, session, self.site.sessions.capabilities)
        is_change = method not in SAFE_METHODS
        if is_change:
            check_content(headers)
            token = headers.only(CSRF_HEADER) or ""
            if row.access != "public" and (session is None or is_forged(session, token)):
                raise ApiError(403, "the change was not sent by this page", "reload the page")
        query = read_query(row.query, split_query(scope["query_string"]))
        body = read_body(row.body, await _read_json(headers, receive)) if is_change else {}
        last = headers.only("last-event-id") or ""
        call = ApiCall(path, query, body, session, last[:2000])
        try:
            if row.is_quick:
                return row.answer(self.site, call)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, row.answer, self.site, call)
        except EpochalError as error:
            raise to_api_error(error) from error

    async def _stream(self, parts: AsyncIterator[str], receive: Receive, send: Send) -> None:
        """Send events until the browser leaves or the server ends."""
        if len(self._streams) >= MAX_STREAMS:
            await _send_answer(_encode_error(ApiError(429, "too many open pages")), send)
            return
        leaving = asyncio.ensure_future(_wait_for_end(receive))
        self._streams.add(leaving)
        try:
            headers = HEADERS | {"content-type": "text/event-stream; charset=utf-8"}
            await send(_head(200, headers))
            while True:
                following = asyncio.ensure_future(anext(parts))
                await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    following.cancel()
                    with suppress(asyncio.CancelledError, StopAsyncIteration):
                        await following
                    break
                body = following.result().encode()
                await send({"type": "http.response.body", "body": body, "more_body": True})
        except StopAsyncIteration:
            pass
        finally:
            self._streams.discard(leaving)
            leaving.cancel()
        await send({"type": "http.response.body", "body": b""})

    def end_streams(self) -> None:
        """End all event streams, because the server ends."""
        for stream in self._streams:
            stream.cancel()


def _check_access(
    row: ApiRoute, session: WebSession | None, offered: tuple[Capability, ...]
) -> None:
    if row.access == "public":
        return
    if session is None or row.access not in session.capabilities:
        hints = {"launch": "start the server with --allow-launch", "edit": "it is read-only"}
        if row.access in offered:  # the session is older than this start of the server
            hints[row.access] = "open the newest link that `epochal serve` printed"
        raise ApiError(403, f"this session may not {row.access}", hints.get(row.access, ""))


async def _read_json(headers: Headers, receive: Receive) -> object:
    length = headers.only("content-length") or "0"
    if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
        raise ApiError(413, "the body is larger than 1 MB")
    data = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ApiError(400, "the body is incomplete")
        data += message.get("body", b"")
        if len(data) > MAX_BODY_BYTES:
            raise ApiError(413, "the body is larger than 1 MB")
        if not message.get("more_body"):
            break
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ApiError(400, "the body is not valid JSON") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _encode(answer: object) -> RawAnswer | FileAnswer | EventStream:
    if isinstance(answer, RawAnswer | FileAnswer | EventStream):
        return answer
    if isinstance(answer, JsonAnswer):
        return _encode_json(answer.value, headers=answer.headers)
    return _encode_json(answer)


def _encode_json(
    value: object, *, headers: Mapping[str, str] = MappingProxyType({}), status: int = 200
) -> RawAnswer:
    try:
        content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        data = content.encode()
    except (TypeError, ValueError):  # NaN, paths, lone surrogates
        data = durable.encode_json(value)
    return RawAnswer(content=data, type="application/json", status=status, headers=headers)


def _encode_error(error: ApiError) -> RawAnswer:
    return _encode_json(error.to_json(), status=error.status)


async def _send_file(answer: FileAnswer, send: Send) -> None:
    """Send a download; a browser that reads slowly holds one piece of it in memory."""
    with answer.file as file:
        own = {
            "content-type": "application/octet-stream",
            "content-length": str(answer.size),
            "content-disposition": f'attachment; filename="{answer.name}"',
            "content-security-policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
        }
        await send(_head(200, HEADERS | own))
        left = answer.size
        while left:
            data = await asyncio.to_thread(file.read, min(left, _PIECE_BYTES))
            if not data:  # it became shorter; the missing bytes tell the browser
                break
            left -= len(data)
            body = {"type": "http.response.body", "body": data, "more_body": bool(left)}
            await send(body)
        if left or not answer.size:
            await send({"type": "http.response.body", "body": b""})


async def _send_answer(answer: RawAnswer, send: Send) -> None:
    length = str(len(answer.content))
    own = {"content-type": answer.type, "content-length": length, **answer.headers}
    await send(_head(answer.status, HEADERS | own))
    await send({"type": "http.response.body", "body": answer.content})


def _head(status: int, headers: dict[str, str]) -> Message:
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": pairs}


async def _wait_for_end(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
