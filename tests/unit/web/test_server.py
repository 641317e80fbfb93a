"""A real server on a real port, and the addresses it may listen on."""

from __future__ import annotations

import http.client
import re
import socket
import threading
from pathlib import Path

import httpx
import pytest

import epochal.web.server as server_module
from epochal.errors import ConfigError
from epochal.web.server import ServeOptions, WebServer, bind, find_names
from unit.web.conftest import RUNS


def test_a_browser_signs_in_and_reads_over_a_real_connection(runs: Path) -> None:
    links: list[str] = []
    server = WebServer(runs, ServeOptions(port=0), on_link=links.append)
    thread = threading.Thread(target=server.run)
    thread.start()
    address, _, code = links[0].partition("/open#")
    try:
        with httpx.Client(base_url=address, timeout=60) as client:
            page = client.get("/open")
            assert page.status_code == 200
            assert "server" not in page.headers
            assert client.get("/api/runs").status_code == 401
            assert client.get("/api/runs", headers={"host": "evil"}).status_code == 403
            origin = {"origin": address}
            seen = client.post("/api/session", json={"code": code}, headers=origin)
            assert seen.json()["capabilities"] == ["read", "edit"]
            assert client.get("/api/runs").json()["total"] == 3
            assert len(links) == 2
            token = origin | {"x-epochal-csrf": seen.json()["csrf"]}
            path = f"/api/runs/{RUNS[0]}/readme"
            assert client.put(path, json={"text": "# new"}, headers=token).status_code == 200
            assert client.put(path, json={"text": "# new"}, headers=origin).status_code == 403
            with client.stream("GET", "/api/events", params={"run": RUNS[0]}) as stream:
                assert next(stream.iter_lines()) == "retry: 2000"
            cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        plain = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
        plain.request("GET", "/api/runs/../../../etc/passwd", headers={"cookie": cookie})
        assert plain.getresponse().status == 404
        plain.close()
    finally:
        server.uvicorn.should_exit = True
        thread.join(60)
    assert not thread.is_alive()


def test_a_server_ends_at_once_and_quietly_although_a_page_is_open(
    runs: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    links: list[str] = []
    server = WebServer(runs, ServeOptions(port=0), on_link=links.append)
    cookie, _ = server.site.sessions.open(links[0].partition("#")[2])
    thread = threading.Thread(target=server.run)
    thread.start()
    cookies = {server.site.cookie_name: cookie}
    with (
        httpx.Client(base_url=server.address, cookies=cookies, timeout=60) as client,
        client.stream("GET", "/api/events") as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == "retry: 2000"
        server.uvicorn.should_exit = True
        assert [*lines]  # ends as it should, without an error of the connection
    thread.join(60)
    assert not thread.is_alive()
    assert caplog.messages == []
    assert capfd.readouterr().err == ""


def test_a_restarted_server_knows_the_browsers_of_its_address(runs: Path) -> None:
    links: list[str] = []
    first = WebServer(runs, ServeOptions(port=0), on_link=links.append)
    port = first.socket.getsockname()[1]
    cookie, _ = first.site.sessions.open(links[0].partition("#")[2])
    first.close()
    for options, is_known in (
        (ServeOptions(port=port), True),
        (ServeOptions(port=port, is_lan=True), False),
        (ServeOptions(port=0), False),
        (ServeOptions(port=port, unix_socket=runs / "s"), False),
        (ServeOptions(port=port, signs_out=True), False),
        (ServeOptions(port=port), False),
    ):
        server = WebServer(runs, options)
        assert (server.site.sessions.find(cookie) is not None) == is_known, options
        server.close()


def test_slow_requests_are_cut_off_and_streams_are_not(runs: Path) -> None:
    links: list[str] = []
    server = WebServer(runs, ServeOptions(port=0), on_link=links.append)
    thread = threading.Thread(target=server.run)
    thread.start()
    address, _, code = links[0].partition("/open#")
    try:
        with httpx.Client(base_url=address, headers={"origin": address}, timeout=60) as client:
            client.post("/api/session", json={"code": code})
            with client.stream("GET", "/api/events") as stream:
                lines = stream.iter_lines()
                assert next(lines) == "retry: 2000"
                server.uvicorn.config.timeout_notify = 0  # at every tick from now on
                with socket.create_connection(server.socket.getsockname()) as slow:
                    slow.sendall(b"GET / HTTP/1.1\r\nHost: ")
                    assert slow.recv(1) == b"", "it was closed"
                assert next(line for line in lines if line.startswith("event")) == "event: runs"
    finally:
        server.uvicorn.should_exit = True
        thread.join()


def test_the_server_sends_no_requests_of_its_own() -> None:
    """Nothing in its folder can open a connection; the socket module only listens."""
    folder = Path(server_module.__file__).parent
    forbidden = re.compile(
        r"^\s*(?:from|import) (urllib\.request|http\.client|httpx|requests|aiohttp|smtplib|ftplib|"
        r"websockets|ssl)\b|create_connection|open_connection|urlopen",
        re.MULTILINE,
    )
    paths = sorted(folder.rglob("*.py"))
    found = {path.name: forbidden.findall(path.read_text()) for path in paths}
    assert not {name: hits for name, hits in found.items() if hits}
    sockets = [path.name for path in paths if "import socket" in path.read_text()]
    assert sockets == ["server.py"]


def test_other_machines_connect_only_if_asked() -> None:
    for host in ("0.0.0.0", "192.168.0.1", "::", "example.org"):
        with pytest.raises(
            ConfigError, match="lets other machines connect\n  add --lan to allow that"
        ):
            bind(ServeOptions(host=host))
    with bind(ServeOptions(port=0)) as found:
        assert found.getsockname()[0] == "127.0.0.1"
    with bind(ServeOptions(port=0, is_lan=True)) as found:
        assert found.getsockname()[0] == "0.0.0.0"
    names = find_names("0.0.0.0")
    assert socket.gethostname().lower() in names
    assert not any(name.startswith(("127.", "0.")) for name in names)


def test_ports_in_use_are_skipped_or_named() -> None:
    with bind(ServeOptions(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=f"cannot listen on 127.0.0.1:{port}: address already"
        ):
            bind(ServeOptions(port=port))
    with pytest.raises(ConfigError, match="must be from 0 to 65535, got 70000"):
        bind(ServeOptions(port=70_000))
    with bind(ServeOptions()) as one, bind(ServeOptions()) as other:
        assert one.getsockname()[1] != other.getsockname()[1]


def test_answers_are_sent_at_once() -> None:
    """Without the protocol asyncio leaves Nagle's algorithm on: 40 ms for every answer."""
    with bind(ServeOptions(port=0)) as found:
        assert found.proto == socket.IPPROTO_TCP


def test_read_only_servers_give_no_right_to_edit() -> None:
    assert ServeOptions(is_read_only=True).capabilities == ("read",)
    assert ServeOptions().capabilities == ("read", "edit")
    assert ServeOptions(allows_launch=True).capabilities == ("read", "edit", "launch")
