"""Sessions of browsers: a code that works once becomes a cookie and a token against forgery."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.web.site.api_error import ApiError
from epochal.web.site.session_file import SESSION_SECONDS, KeptSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.web.site.route import Capability
    from epochal.web.site.session_file import SessionFile

TOKEN_BYTES = 32
MAX_SESSIONS = 100
MAX_GUESSES = 10
"""Wrong codes per minute that are answered with 401; more are answered with 429."""

_MINUTE = 60.0


@final
@dataclass(frozen=True, slots=True)
class WebSession:
    """One browser that opened the link."""

    csrf: str
    """The value that its page sends with every change."""

    capabilities: tuple[Capability, ...]
    key: str
    """The hash of its cookie, which identifies it on the server."""


@final
class WebSessions:
    """The sessions of one server.

    Args:
        capabilities: What a session may do at most.
        on_new_code: Receives each code, the first and the one after each use, to show it.
        file: Keeps them for the next start of the server; by default they end with it.
        clock: Gives the seconds since 1970.
    """

    def __init__(
        self,
        capabilities: tuple[Capability, ...],
        on_new_code: Callable[[str], None] = lambda code: None,
        *,
        file: SessionFile | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.capabilities, self._show = capabilities, on_new_code
        self._file, self._clock = file, clock
        self._sessions: dict[str, KeptSession] = {} if file is None else file.read()
        self._guesses: deque[float] = deque(maxlen=MAX_GUESSES)
        self._lock = threading.Lock()
        self._code = ""
        self.make_code()

    def make_code(self) -> str:
        """A new code, which replaces one that was not used."""
        self._code = secrets.token_urlsafe(TOKEN_BYTES)
        self._show(self._code)
        return self._code

    def open(self, code: str) -> tuple[str, WebSession]:
        """The cookie and the session for the current code; ApiError for any other."""
        with self._lock:
            if not _is_equal(code, self._code):
                raise self._refuse_guess()
            cookie, now = secrets.token_urlsafe(TOKEN_BYTES), self._clock()
            fresh = KeptSession(self.capabilities, now + SESSION_SECONDS)
            valid = {name: one for name, one in self._sessions.items() if one.expires > now}
            kept = list(valid.items())[-(MAX_SESSIONS - 1) :]
            self._sessions = {**dict(kept), _digest(cookie): fresh}
            self._keep()
            self.make_code()
        return cookie, WebSession(_make_csrf(cookie), self.capabilities, _digest(cookie))

    def close(self, session: WebSession) -> None:
        """End a session; its cookie is worth nothing any more."""
        with self._lock:
            kept = {key: one for key, one in self._sessions.items() if key != session.key}
            self._sessions = kept
            self._keep()

    def has(self, session: WebSession) -> bool:
        """Whether a session is still open."""
        return session.key in self._sessions

    def _keep(self) -> None:
        if self._file is not None:
            self._file.write(self._sessions)

    def find(self, cookie: str) -> WebSession | None:
        """The session of a cookie, if there is one.

        It may do what its link allowed and this server allows: a restart never gives it more.
        """
        kept = self._sessions.get(_digest(cookie)) if cookie else None
        if kept is None or kept.expires <= self._clock():
            return None
        allowed = tuple(one for one in self.capabilities if one in kept.capabilities)
        return WebSession(_make_csrf(cookie), allowed, _digest(cookie))

    def _refuse_guess(self) -> ApiError:
        now = time.monotonic()
        is_often = len(self._guesses) == MAX_GUESSES and now - self._guesses[0] < _MINUTE
        self._guesses.append(now)
        if is_often:  # the right code still works, so that guesses cannot lock the user out
            return ApiError(429, "too many wrong codes", "wait a minute")
        return ApiError(401, "the code is wrong or was used", "open the newest link it printed")


def is_forged(session: WebSession, token: str) -> bool:
    """Whether a change was not sent by the page of this session."""
    return not _is_equal(token, session.csrf)


def _is_equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())


def _digest(cookie: str) -> str:
    """A key that tells nothing about the cookie by the time of its lookup."""
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()


def _make_csrf(cookie: str) -> str:
    """The token of a session; made from its cookie, so that no file needs to have it."""
    return hmac.new(cookie.encode("utf-8", "replace"), b"csrf", hashlib.sha256).hexdigest()
