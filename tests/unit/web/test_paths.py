"""No address leads to a file that the record does not list."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from unit.web.conftest import RUNS

if TYPE_CHECKING:
    from pathlib import Path

    from browsing import Browser

UPS = (
    "..", "%2e%2e", "%2E%2E", ".%2e", "%252e%252e", "%25252e%25252e", "..%00", "%00", "..;",
    "..%3b", "..%23", "..%3f", "..%5c..", "..\\..", "%c0%ae%c0%ae", "%c0%2e%c0%2e", "%e0%80%ae",
    "%uff0e%uff0e", "%ef%bc%8e%ef%bc%8e", "....", "..%20", "%20..", "..%09", "..%0d%0a", "~",
    "%7e", "C:", "c%3a", ".", "%2e", "%2f", "%2f%2f", "%255c", "file:", "\\\\host\\share",
)  # fmt: skip
TARGETS = ("", "secret.txt", "etc%2fpasswd", "%2fetc%2fpasswd", "run.json", ".epochal%2findex.db")
FORMS = (
    "/api/runs/{up}{sep}{target}",
    "/api/media/{run}/{up}{sep}{target}",
    "/api/runs/{run}/code/{up}{sep}{target}",
    "/api/runs/{up}{sep}{target}/download",
    "/api/runs/{run}/checkpoints/{up}{sep}{target}/weights",
    "/api/runs/{up}{sep}{target}/form",
    "/api/experiments/{up}{sep}{target}/form",
    "/api/sweeps/{up}{sep}{target}",
    "/assets/{up}{sep}{target}",
    "/{up}{sep}{target}",
)


def test_no_path_leaves_the_record(
    busy_browser: Browser, runs: Path, tmp_path: Path, record_property
) -> None:
    browser = busy_browser
    (tmp_path / "secret.txt").write_text("SECRET-CONTENT")
    (runs / "secret.txt").write_text("SECRET-CONTENT")
    count = 0
    page = browser.send("GET", "/").body
    for up, target, form in itertools.product(UPS, TARGETS, FORMS):
        path = form.format(up=up, target=target, run=RUNS[0], sep="/" if target else "")
        done = browser.send("GET", path)
        assert b"SECRET-CONTENT" not in done.body, path
        assert b"root:" not in done.body, path
        is_page = done.body == page and not path.startswith(("/api", "/assets"))
        assert done.status == 404 or is_page, (path, done.status)
        count += 1
    assert count >= 600
    record_property("counted", f"{count} paths that leave the record refused")


def test_ids_in_bodies_and_queries_are_no_paths(busy_browser: Browser, runs: Path) -> None:
    browser = busy_browser
    outside = runs.parent / "outside"
    outside.mkdir()
    for text in (
        "../outside",
        "..",
        ".",
        "/",
        str(outside),
        f"{RUNS[0]}/..",
        "*",
        "%",
        "\0",
        "a\nb",
    ):
        assert browser.send("POST", "/api/runs/delete", body={"ids": [text]}).status == 404, text
        query = {"run": [text, RUNS[0]]}
        assert browser.send("GET", "/api/compare", query=query).status == 404, text
        assert browser.get("/api/sparklines", run=text, name="val/acc") == {}, text
    assert outside.is_dir()
    assert browser.get("/api/runs")["total"] == 3


def test_names_in_any_script_are_found(browser: Browser, runs: Path) -> None:
    from urllib.parse import quote

    from comparing import make_run

    make_run(runs / "p" / "t" / "试验-é")
    browser.site.index.refresh()
    assert browser.get(f"/api/runs/{quote('试验-é')}")["id"] == "试验-é"
