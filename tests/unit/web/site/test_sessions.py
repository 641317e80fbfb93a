"""The code of the printed link works once, and tells nobody anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from browsing import COOKIE, Browser
from epochal.web.site.api_error import ApiError
from epochal.web.site.sessions import MAX_GUESSES, MAX_SESSIONS, WebSessions

if TYPE_CHECKING:
    from pathlib import Path


def test_code_becomes_a_strict_cookie_and_a_token(stranger: Browser) -> None:
    assert stranger.send("GET", "/api/session").status == 401
    done = stranger.sign_in()
    assert done.status == 200
    cookie = done.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert cookie.endswith("; HttpOnly; SameSite=Strict; Path=/")
    assert len(stranger.cookie) >= 43
    seen = stranger.get("/api/session")
    assert seen == done.json
    assert seen["capabilities"] == ["read", "edit", "launch"]
    assert seen["project"] == "shop"


def test_code_works_once_and_another_one_follows(stranger: Browser) -> None:
    first = stranger.codes[0]
    stranger.sign_in()
    done = stranger.send("POST", "/api/session", body={"code": first})
    assert (done.status, done.what) == (401, "the code is wrong or was used")
    assert stranger.codes[1] != first
    assert stranger.send("POST", "/api/session", body={"code": stranger.codes[1]}).status == 200


def test_guesses_are_limited_but_lock_nobody_out(stranger: Browser) -> None:
    answers = [
        stranger.send("POST", "/api/session", body={"code": str(i)}).status for i in range(1000)
    ]
    assert answers[:MAX_GUESSES] == [401] * MAX_GUESSES
    assert set(answers[MAX_GUESSES:]) == {429}
    assert stranger.sign_in().status == 200


def test_old_sessions_make_room(runs: Path) -> None:
    codes: list[str] = []
    sessions = WebSessions(("read",), codes.append)
    cookies = [sessions.open(codes[-1])[0] for _ in range(MAX_SESSIONS + 1)]
    assert sessions.find(cookies[0]) is None
    assert all(map(sessions.find, cookies[1:]))
    with pytest.raises(ApiError, match="wrong"):
        sessions.open("ü" * 100)


def test_no_answer_and_no_log_has_the_secrets(browser: Browser, caplog, capfd) -> None:
    secrets = [*browser.codes, browser.cookie]
    bodies = []
    for path in ("/", "/open", "/api/session", "/api/runs", "/api/x", "/api/openapi.json", "/%zz"):
        done = browser.send("GET", path)
        bodies.append(done.body.decode() + str(done.headers))
    bodies.append(browser.send("POST", "/api/session", body={"code": "x"}).body.decode())
    written = [*bodies, caplog.text, *capfd.readouterr()]
    assert [text for text in written if any(one in text for one in secrets)] == []
