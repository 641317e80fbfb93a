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

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.web.site.routes import Capability

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


@final
class WebSessions:
    """The sessions of one server, in memory only; every start of a server has new ones.

    Args:
        capabilities: What every session may do.
        on_new_code: Receives each code, the first and the one after each use, to show it.
    """

    def __init__(
        self,
        capabilities: tuple[Capability, ...],
        on_new_code: Callable[[str], None] = lambda code: None,
    ) -> None:
        self._capabilities, self._show = capabilities, on_new_code
        self._sessions: dict[str, WebSession] = {}
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
            cookie = secrets.token_urlsafe(TOKEN_BYTES)
            session = WebSession(secrets.token_urlsafe(TOKEN_BYTES), self._capabilities)
            self._sessions[_digest(cookie)] = session
            while len(self._sessions) > MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self.make_code()
        return cookie, session

    def find(self, cookie: str) -> WebSession | None:
        """The session of a cookie, if there is one."""
        return self._sessions.get(_digest(cookie)) if cookie else None

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
