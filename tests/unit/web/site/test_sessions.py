"""The code of the printed link works once, and errors reveal nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from browsing import COOKIE, Browser
from epochal.web.site.api_error import ApiError
from epochal.web.site.session_file import SESSION_SECONDS, SessionFile
from epochal.web.site.sessions import MAX_GUESSES, MAX_SESSIONS, WebSessions, is_forged

if TYPE_CHECKING:
    from pathlib import Path

ADDRESS = "127.0.0.1:8765"


class Server:
    """One start of a server that keeps its sessions."""

    def __init__(self, runs: Path, *capabilities: Any, address: str = ADDRESS, now: float = 0):
        self.codes: list[str] = []
        self.file = SessionFile(runs, address)
        allowed = capabilities or ("read", "edit")
        self.sessions = WebSessions(
            allowed, self.codes.append, file=self.file, clock=lambda: self.now
        )
        self.now = now

    def sign_in(self) -> str:
        return self.sessions.open(self.codes[-1])[0]


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


def test_signing_out_ends_the_session_here_and_after_a_restart(
    stranger: Browser, runs: Path
) -> None:
    stranger.sign_in()
    assert stranger.send("DELETE", "/api/session", body={}, x_epochal_csrf="wrong").status == 403
    done = stranger.send("DELETE", "/api/session", body={})
    assert done.json == {"signed_out": True}
    assert done.headers["set-cookie"].startswith(f"{COOKIE}=; Max-Age=0; ")
    assert stranger.send("GET", "/api/session").status == 401
    server = Server(runs)
    kept, gone = server.sign_in(), server.sign_in()
    session = server.sessions.find(gone)
    assert session is not None
    assert server.sessions.has(session)
    server.sessions.close(session)
    assert not server.sessions.has(session)
    again = Server(runs)
    assert again.sessions.find(gone) is None
    assert again.sessions.find(kept) is not None


def test_wrong_codes_are_limited_but_block_no_other_browser(stranger: Browser) -> None:
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


def test_a_restarted_server_knows_its_sessions(tmp_path: Path) -> None:
    first = Server(tmp_path)
    cookies = [first.sign_in() for _ in range(3)]
    token = first.sessions.find(cookies[0]).csrf
    again = Server(tmp_path)
    assert all(map(again.sessions.find, cookies))
    assert again.sessions.find(cookies[0]).csrf == token
    assert is_forged(again.sessions.find(cookies[1]), token), "every session has its own token"
    assert again.codes[0] not in first.codes
    with pytest.raises(ApiError, match="wrong"):
        again.sessions.open(first.codes[-1])
    later = again.sign_in()
    assert all(map(Server(tmp_path).sessions.find, [*cookies, later]))


def test_sessions_belong_to_one_server_and_end(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    cookie = Server(tmp_path).sign_in()
    for where, other in {
        "another port": Server(tmp_path, address="127.0.0.1:8766"),
        "other machines can connect": Server(tmp_path, address="0.0.0.0:8765"),
        "a socket file": Server(tmp_path, address="/home/me/epochal.sock"),
        "other runs": Server(tmp_path / "other"),
        "a month later": Server(tmp_path, now=SESSION_SECONDS),
    }.items():
        assert other.sessions.find(cookie) is None, where
    running = Server(tmp_path)
    assert running.sessions.find(cookie)
    running.now = SESSION_SECONDS
    assert running.sessions.find(cookie) is None, "also while the server runs"
    running.sign_in()
    assert len(running.file.read()) == 1, "what expired is not kept"
    running.file.write({})
    assert Server(tmp_path).sessions.find(cookie) is None


def test_a_restart_gives_a_session_no_more_rights(tmp_path: Path) -> None:
    launch, edit, read = ("read", "edit", "launch"), ("read", "edit"), ("read",)
    for opened, restarted, expected in (
        (launch, launch, launch),
        (launch, edit, edit),
        (edit, launch, edit),
        (read, launch, read),
        (launch, read, read),
    ):
        cookie = Server(tmp_path, *opened).sign_in()
        found = Server(tmp_path, *restarted).sessions.find(cookie)
        assert found.capabilities == expected, (opened, restarted)


def test_error_for_an_old_session_asks_for_the_newest_link(browser: Browser) -> None:
    cookie = browser.cookie
    sessions = browser.site.sessions
    sessions.capabilities = ("read",)
    browser.sign_in()
    sessions.capabilities = ("read", "edit", "launch")
    for path, body in {"/api/queue/pause": {}, "/api/mail/read": {"ids": ["x"]}}.items():
        done = browser.send("POST", path, body=body)
        hint = done.json["error"]["hint"]
        assert (done.status, hint) == (403, "open the newest link that `epochal serve` printed")
    assert sessions.find(cookie).capabilities == ("read", "edit", "launch")


def test_the_file_of_sessions_is_private_and_has_no_secrets(tmp_path: Path) -> None:
    server = Server(tmp_path)
    for _ in range(MAX_SESSIONS + 1):
        cookie = server.sign_in()
    path = server.file.find_path()
    text = path.read_text()
    secrets = (*server.codes, cookie, server.sessions.find(cookie).csrf)
    assert [one for one in secrets if one in text] == []
    assert len(server.file.read()) == MAX_SESSIONS
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert Server(tmp_path).sessions.find(cookie)
    path.chmod(0o640)
    assert Server(tmp_path).sessions.find(cookie) is None, "others could read it"
    for damaged in ("", "{", "[]", '{"sessions": {"x": 1}}', '{"sessions": {"x": {"expires": 9}}}'):
        path.write_text(damaged)
        path.chmod(0o600)
        assert Server(tmp_path).file.read() == {}, damaged


def test_files_of_forgotten_servers_are_removed(tmp_path: Path) -> None:
    old, new = Server(tmp_path, address="127.0.0.1:1"), Server(tmp_path)
    old.sign_in()
    os.utime(old.file.find_path(), (0, 0))
    new.sign_in()
    assert not old.file.find_path().exists()
    assert new.file.find_path().exists()


def test_sessions_work_without_a_folder_to_keep_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    server = Server(tmp_path)
    assert all(server.sessions.find(server.sign_in()) for _ in range(2))
    assert len(caplog.messages) == 1, "it is said once"
    wanted = "browsers must open a new link when this server is restarted: "
    assert caplog.messages[0].startswith(wanted)
