"""Requests of other sites and under other names are refused, whatever their method or headers."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from browsing import COOKIE, HOST, ORIGIN, PORT, Browser
from epochal.web.checks import HEADERS, MAX_HEADER_BYTES, Headers, split_path
from epochal.web.route_table import ROUTES
from epochal.web.site.api_error import ApiError

if TYPE_CHECKING:
    from pathlib import Path

ALLOWED_HOSTS = (HOST, f"localhost:{PORT}", f"[::1]:{PORT}")
HOSTS = (
    "evil.example", f"evil.example:{PORT}", "127.0.0.1", "localhost", "127.0.0.1:80",
    "127.0.0.1:8766", f"127.0.0.1:{PORT}.", f"127.0.0.1.:{PORT}", f"localhost.:{PORT}",
    f"LOCALHOST:{PORT}", f"LocalHost:{PORT}", f"127.1:{PORT}", f"127.0.1:{PORT}",
    f"2130706433:{PORT}", f"0x7f000001:{PORT}", f"0177.0.0.1:{PORT}", f"0.0.0.0:{PORT}",
    f"::1:{PORT}", f"[::]:{PORT}", f"[0:0:0:0:0:0:0:1]:{PORT}", f"[::ffff:127.0.0.1]:{PORT}",
    f"127.0.0.1:{PORT}:80", f"127.0.0.1:0{PORT}", f"127.0.0.1:{PORT}/", f"127.0.0.1:{PORT}@evil",
    f"evil@127.0.0.1:{PORT}", f"127.0.0.1:{PORT}#", f"127.0.0.1:{PORT}?", f" 127.0.0.1:{PORT}",
    f"127.0.0.1:{PORT} ", f"127.0.0.1\t:{PORT}", f"127.0.0.1:{PORT},evil", f"http://{HOST}",
    f"a.localhost:{PORT}", f"localhost.evil.example:{PORT}", f"127.0.0.1.nip.io:{PORT}", "",
    f"[::1]:{PORT}.", f"[::1%25lo]:{PORT}", "\xff",
)  # fmt: skip


def test_only_its_own_names_are_answered(browser: Browser) -> None:
    for host in ALLOWED_HOSTS:
        assert browser.send("GET", "/api/session", host=host).status == 200, host
    for host, path in itertools.product(HOSTS, ("/", "/open", "/api/session", "/api/runs")):
        done = browser.send("GET", path, host=host)
        assert done.status == 403, (host, path)
        assert done.what == "this server does not answer under that name", host
    assert len(HOSTS) >= 40
    assert browser.send("GET", "/", host=None).status == 403
    twice = [("host", HOST), ("host", HOST)]
    assert browser.request("GET", "/", headers=twice).status == 400


ORIGINS = (
    None, "null", "", "http://evil.example", f"https://{HOST}", "http://127.0.0.1:8766",
    f"http://localhost:{PORT}", f"{ORIGIN}/", f"{ORIGIN}.evil.example", "file://",
)  # fmt: skip
SITES = (None, "same-site", "cross-site", "none", "nonsense")
TYPES = ("application/json", "text/plain", "application/x-www-form-urlencoded", None)
CHANGES = [
    (row.method, row.path.replace("{id}", "20261114-100000-aaaa"))
    for row in ROUTES
    if row.method != "GET"
]


def test_no_other_site_changes_anything(browser: Browser, runs: Path, record_property) -> None:
    """Each case has the cookie and even the token, so that nothing else refuses it."""
    before = sorted(path.stat().st_mtime_ns for path in runs.rglob("*") if path.name != "index.db")
    cases: list[tuple[str | None, ...]] = []
    for number, (origin, site, kind) in enumerate(itertools.product(ORIGINS, SITES, TYPES)):
        # Every change in turn: all of them with all headers would repeat the same decision.
        chosen = [CHANGES[(4 * number + more) % len(CHANGES)] for more in range(4)]
        cases += [(origin, site, kind, *change) for change in chosen]
    assert {(method, path) for *_, method, path in cases} == {*CHANGES}
    for origin, site, kind, method, path in cases:
        body = {"ids": ["20261114-100000-aaaa"]} if method == "POST" else {"text": "# changed"}
        done = browser.send(
            method, path, body=body, origin=origin, sec_fetch_site=site, content_type=kind
        )
        assert done.status == 403, (origin, site, kind, method, path)
    assert len(cases) >= 600
    record_property("counted", f"{len(cases)} cross-site changes refused")
    after = sorted(path.stat().st_mtime_ns for path in runs.rglob("*") if path.name != "index.db")
    assert after == before


def test_no_other_site_reads_anything(browser: Browser) -> None:
    origins = [one for one in ORIGINS if one is not None]
    for row in ROUTES:
        if row.method != "GET" or row.is_page:
            continue
        path = row.path.replace("{", "").replace("}", "")
        for origin in origins:
            done = browser.send("GET", path, origin=origin, sec_fetch_site=None)
            assert done.status == 403, (path, origin)
        for site in ("same-site", "cross-site", "nonsense"):
            for mode in (None, "navigate", "no-cors", "cors", "websocket"):
                done = browser.send(
                    "GET", path, sec_fetch_site=site, sec_fetch_mode=mode, sec_fetch_dest="document"
                )
                assert done.status == 403, (path, site, mode)


def test_other_sites_may_link_to_the_page_but_not_load_it(browser: Browser) -> None:
    for path in ("/", "/open", "/runs/x"):
        link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
        assert browser.send("GET", path, **link, sec_fetch_dest="document").status == 200, path
        for target in ("iframe", "embed", "object", "frame", "script", None):
            done = browser.send("GET", path, **link, sec_fetch_dest=target)
            assert done.status == 403, (path, target)


def test_changes_need_the_token_of_their_session(browser: Browser, runs: Path) -> None:
    other = Browser(runs)
    other.sign_in()
    body = {"ids": ["x"]}
    for token in (None, "", "wrong", other.csrf, browser.cookie, browser.csrf[:-1]):
        done = browser.send("POST", "/api/mail/read", body=body, x_epochal_csrf=token)
        assert (done.status, done.what) == (403, "the change was not sent by this page"), token
    assert browser.send("POST", "/api/mail/read", body=body).status == 200
    other.close()


def test_bodies_must_be_json_objects_of_known_fields(browser: Browser) -> None:
    deep = b'{"ids":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for data, status in [
        (b"", 400),
        (b"{", 400),
        (b"[]", 422),
        (b"null", 422),
        (b"\xff", 400),
        (deep, 400),
        (b'{"ids":' + b"[" * 50 + b"]" * 50 + b"}", 422),
        (b'{"ids": ["a"], "path": "/etc"}', 422),
        (b'{"ids": "a"}', 422),
        (b'{"ids": [1]}', 422),
        (b'{"ids": []}', 422),
        (b'{"ids": ["\\ud800"]}', 422),
        (b'{"ids": ["a"], "read": 1}', 422),
        (b'{"ids": ["' + b"a" * 301 + b'"]}', 422),
        (b" " * ((1 << 20) + 1), 413),
    ]:
        headers = browser.headers("POST")
        done = browser.request("POST", "/api/mail/read", headers=headers, body=data)
        assert done.status == status, data[:40]
        assert set(done.json["error"]) == {"what", "hint"}, data[:40]
    headers = browser.headers("POST", content_length=str(1 << 40))
    assert browser.request("POST", "/api/mail/read", headers=headers).status == 413
    for kind in (
        None,
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ):
        done = browser.send("POST", "/api/mail/read", body={"ids": ["a"]}, content_type=kind)
        assert (done.status, done.what) == (400, "the body is not application/json"), kind
    packed = browser.send("POST", "/api/mail/read", body={"ids": ["a"]}, content_encoding="gzip")
    assert (packed.status, packed.what) == (400, "the body is encoded")


def test_every_answer_has_the_headers_of_a_safe_page(browser: Browser) -> None:
    cases = [
        ("GET", "/"),
        ("GET", "/api/session"),
        ("GET", "/api/x"),
        ("POST", "/x"),
        ("GET", "/%"),
    ]
    for method, path in cases:
        done = browser.send(method, path, body={})
        for name, value in HEADERS.items():
            if name != "cache-control":
                assert done.headers[name] == value, (path, name)
        assert "server" not in done.headers
        assert not any(name.startswith("access-control") for name in done.headers), path
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy


def test_large_headers_and_repeated_ones_are_refused(browser: Browser) -> None:
    done = browser.send("GET", "/api/session", x_long="x" * MAX_HEADER_BYTES)
    assert done.status == 431
    twice = [*browser.headers("GET"), ("cookie", "a=b")]
    assert browser.request("GET", "/api/session", headers=twice).status == 400


def test_paths_are_decoded_once_and_never_ambiguous() -> None:
    assert split_path(b"/") == ()
    assert split_path(b"/api/runs/a%20b%C3%A9") == ("api", "runs", "a b\u00e9")
    assert split_path(b"/a/%252e%252e") == ("a", "%2e%2e")
    for raw in (
        b"", b"a", b"*", b"http://evil/", b"//", b"/a/", b"/a//b", b"/.", b"/..", b"/a/../b",
        b"/%2e", b"/%2e%2e/b", b"/a%2fb", b"/a%5cb", b"/a\\b", b"/%00", b"/a%0ab", b"/%zz", b"/%",
        b"/a b", b"/\xff", b"/%ff", b"/%c0%ae", b"/%e2%80%ae", b"/a\tb",
    ):  # fmt: skip
        with pytest.raises(ApiError) as caught:
            split_path(raw)
        assert caught.value.status == 404, raw


@pytest.mark.parametrize("text", ["", "a", "a=b; a=c", "x=1;a", "a=b,a=c;x"])
def test_ambiguous_cookies_are_no_cookie(text: str) -> None:
    found = Headers.of([(b"cookie", text.encode())]).cookie("a")
    assert found in ("", "b,a=c"), text


def test_a_failure_of_the_server_reveals_nothing(browser: Browser, caplog) -> None:
    browser.site.index.ask = None  # type: ignore[method-assign,assignment]
    done = browser.send("GET", "/api/runs", query={"where": "secret-word"})
    assert done.status == 500
    assert done.json["error"]["hint"] == "the terminal of `epochal serve` shows why"
    assert "secret-word" not in caplog.text
    assert browser.cookie not in caplog.text
    assert COOKIE not in caplog.text
