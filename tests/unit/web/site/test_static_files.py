"""The page: files by exact names, the same page for every address, and how to build it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from browsing import Browser

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def static(tmp_path: Path) -> Path:
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html>page")
    (folder / "favicon.svg").write_text("<svg/>")
    (folder / "assets" / "index-AbCd1234.js").write_text("1")
    (folder / "assets" / "notes.txt").write_text("no")
    (folder / "assets" / "link.js").symlink_to(tmp_path / "secret.js")
    (tmp_path / "secret.js").write_text("secret")
    return folder


def test_files_of_the_page_are_served_by_name(runs: Path, static: Path) -> None:
    browser = Browser(runs, static=static)
    for path, status, kind in [
        ("/", 200, "text/html; charset=utf-8"),
        ("/open", 200, "text/html; charset=utf-8"),
        ("/runs/20261114-100000-aaaa", 200, "text/html; charset=utf-8"),
        ("/runs/x/log", 200, "text/html; charset=utf-8"),
        ("/favicon.svg", 200, "image/svg+xml"),
        ("/assets/index-AbCd1234.js", 200, "text/javascript; charset=utf-8"),
        ("/assets/notes.txt", 404, ""),
        ("/assets/link.js", 404, ""),
        ("/assets/unknown.js", 404, ""),
    ]:
        done = browser.send("GET", path)
        assert done.status == status, path
        assert status == 404 or done.headers["content-type"] == kind, path
    hashed = browser.send("GET", "/assets/index-AbCd1234.js")
    assert "immutable" in hashed.headers["cache-control"]
    assert browser.send("GET", "/").headers["cache-control"] == "no-cache"
    browser.close()


def test_without_a_build_the_page_says_what_to_type(runs: Path, tmp_path: Path) -> None:
    browser = Browser(runs, static=tmp_path / "missing")
    assert b"<code>make web</code>" in browser.send("GET", "/").body
    browser.close()
