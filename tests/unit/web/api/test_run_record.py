"""The parts of one run, as the page reads them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from comparing import keep_code, make_run
from epochal import durable
from epochal.records import read_run
from unit.web.conftest import RUNS

if TYPE_CHECKING:
    from pathlib import Path

    from browsing import Browser

FIRST = RUNS[0]


@pytest.fixture
def folder(runs: Path) -> Path:
    return runs / "shop" / "t" / FIRST


def test_facts_of_a_run(browser: Browser) -> None:
    run = browser.get(f"/api/runs/{RUNS[2]}")
    assert run["tag"] == "run 2"
    assert run["status"] == "failed"
    assert run["monitor"] == {"name": "val/acc", "mode": "max"}
    assert run["metrics"]["val/acc"]["best"] == 0.8
    assert run["metrics"]["train/loss"] == {
        "last": 2.1, "low": 2.1, "high": 3.0, "best": 2.1, "mode": "min", "step": 9, "count": 10,
    }  # fmt: skip
    assert run["readme"] == "# run 2\n\nWhy not?\n"
    assert run["desc"] == "Why not?"
    assert run["error"] is None
    assert run["parent"] is None


def test_error_of_a_failed_run_has_no_terminal_commands(browser: Browser, folder: Path) -> None:
    result = {"attempt": 0, "exception_type": "ValueError", "message": "\x1b[31mbad\x1b[0m"}
    result["traceback"] = "File x\x1b]0;title\x07\r\n  line\x9b2J"
    (folder / "result.json").write_bytes(durable.encode_json(result))
    error = browser.get(f"/api/runs/{FIRST}")["error"]
    assert error == {"what": "ValueError: bad", "traceback": "File x\n  line\\x9b2J"}


def test_config_says_who_set_each_value(browser: Browser) -> None:
    config = browser.get(f"/api/runs/{FIRST}/config")
    values = {one["key"]: one for one in config["values"]}
    assert values["optim.lr"] == {
        "key": "optim.lr", "value": 0.1, "default": False, "layer": "file", "place": "a.yaml:1:1",
    }  # fmt: skip
    assert config["format"] == "json"
    assert '"lr"' in config["text"]


def test_code_is_listed_and_read_by_id(browser: Browser, folder: Path) -> None:
    content = {"a.py": b"print('<b>')\n", "b.bin": b"\0\1", "dir/c.py": "é".encode()}
    keep_code(read_run(folder), content)
    listing = browser.get(f"/api/runs/{FIRST}/code")
    files = {one["path"]: one["id"] for one in listing["files"]}
    assert [*files] == ["a.py", "b.bin", "dir/c.py"]
    assert (listing["altered"], listing["is_verified"]) == ({}, True)
    texts = {path: browser.get(f"/api/runs/{FIRST}/code/{one}") for path, one in files.items()}
    assert texts["a.py"]["text"] == "print('<b>')\n"
    assert (texts["b.bin"]["text"], texts["b.bin"]["is_text"]) == ("", False)
    assert texts["dir/c.py"]["text"] == "é"
    (folder / "code" / "project" / "a.py").write_text("changed")
    altered = browser.get(f"/api/runs/{FIRST}/code")["altered"]
    assert altered == {"project/a.py": "changed"}


def test_log_is_read_in_whole_lines(browser: Browser, folder: Path) -> None:
    path, size = f"/api/runs/{FIRST}/log", (folder / "logs" / "run.log").stat().st_size
    whole = browser.get(path)
    assert (whole["start"], whole["next"], whole["size"]) == (0, size, size)
    assert whole["ranks"] == [0]
    tail = browser.get(path, limit=100)
    assert tail["text"].startswith("line 97 of")
    assert tail["next"] == size
    part = browser.get(path, after=0, limit=100)
    assert part["text"].endswith("\n")
    assert browser.get(path, after=part["next"], limit=100)["text"].startswith("line 3 of")
    assert browser.get(path, after=10**9)["text"] == ""
    assert browser.send("GET", path, query={"rank": 3}).status == 404


def test_log_is_searched(browser: Browser) -> None:
    found = browser.get(f"/api/runs/{FIRST}/log/search", q="LINE 42")
    assert found == {
        "hits": [{"line": 43, "at": 1334, "text": f"line 42 of {FIRST}"}],
        "is_cut": False,
    }
    assert browser.send("GET", f"/api/runs/{FIRST}/log/search", query={"q": " "}).status == 422


def test_log_without_line_ends_is_read_in_parts(browser: Browser, folder: Path) -> None:
    (folder / "logs" / "run.log").write_bytes(b"x" * 3_000_000 + b"needle" + b"x" * 100)
    found = browser.get(f"/api/runs/{FIRST}/log/search", q="needle")
    assert [(one["line"], len(one["text"])) for one in found["hits"]] == [(3, 2000)]
    assert len(browser.get(f"/api/runs/{FIRST}/log", after=0)["text"]) == 65_536


PNG = b"\x89PNG\r\n\x1a\n rest"


def log_media(folder: Path, **files: str) -> None:
    lines = [
        {"kind": "media", "media": "file", "name": name, "step": 1, "file": file}
        for name, file in files.items()
    ]
    (folder / "events.jsonl").write_bytes(b"".join(map(durable.encode_line, lines)))


def test_media_are_shown_as_what_they_are_or_downloaded(browser: Browser, folder: Path) -> None:
    contents = {
        "good.png": PNG,
        "fake.png": b"<script>alert(1)</script>",
        "page.html": b"<script>alert(1)</script>",
        "draw.svg": b"<svg onload='alert(1)'/>",
        "text.txt": b"<script>",
        "data.json": b"{}",
    }
    (folder / "media" / "file").mkdir(parents=True)
    for name, data in contents.items():
        (folder / "media" / "file" / name).write_bytes(data)
    log_media(folder, **{name: f"media/file/{name}" for name in contents})
    items = {one["name"]: one for one in browser.get(f"/api/runs/{FIRST}/media")["items"]}
    assert items.keys() == contents.keys()
    for name, kind in [
        ("good.png", "image/png"),
        ("fake.png", ""),
        ("page.html", ""),
        ("draw.svg", ""),
        ("text.txt", "text/plain; charset=utf-8"),
        ("data.json", "application/json"),
    ]:
        done = browser.send("GET", f"/api/media/{FIRST}/{items[name]['id']}")
        assert done.body == contents[name], name
        assert done.headers["content-type"] == (kind or "application/octet-stream"), name
        assert ("attachment" in done.headers.get("content-disposition", "")) == (not kind), name
        assert done.headers["content-security-policy"].startswith("sandbox;"), name
        assert done.headers["x-content-type-options"] == "nosniff", name


def test_files_outside_of_a_run_are_never_read(
    browser: Browser, folder: Path, tmp_path: Path
) -> None:
    """Others may have written the record: links, paths that leave it, and special files."""
    import os

    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (folder / "media").mkdir()
    (folder / "media" / "link.txt").symlink_to(secret)
    (folder / "media" / "dir").symlink_to(tmp_path)
    (folder / ".hidden").write_text("secret")
    os.mkfifo(folder / "media" / "fifo.txt")
    traps = {
        "up": f"../../../../{secret.name}",
        "absolute": str(secret),
        "link": "media/link.txt",
        "inside": "media/dir/secret.txt",
        "hidden": ".hidden",
        "fifo": "media/fifo.txt",
        "device": "/dev/zero",
        "empty": "",
        "dot": "media/./link.txt",
        "back": "media\\..\\..\\secret.txt",
    }
    log_media(folder, **traps)
    items = browser.get(f"/api/runs/{FIRST}/media")["items"]
    assert items
    for one in items:
        done = browser.send("GET", f"/api/media/{FIRST}/{one['id']}")
        assert done.status == 404, one["name"]
    shutil.rmtree(folder / "logs")
    (folder / "logs").symlink_to(tmp_path)
    (tmp_path / "run.log").write_text("secret")
    assert browser.send("GET", f"/api/runs/{FIRST}/log").status == 404
    keep_code(read_run(folder), {"a.py": b"x", "b/c.py": b"y"})
    (folder / "code" / "project" / "a.py").unlink()
    (folder / "code" / "project" / "a.py").symlink_to(secret)
    shutil.rmtree(folder / "code" / "project" / "b")
    (folder / "code" / "project" / "b").symlink_to(tmp_path)
    (tmp_path / "c.py").write_text("secret")
    for one in browser.get(f"/api/runs/{FIRST}/code")["files"]:
        assert browser.send("GET", f"/api/runs/{FIRST}/code/{one['id']}").status == 404


def test_time_checkpoints_and_system_figures(browser: Browser, folder: Path) -> None:
    times = {"steps": 8.0, "data wait": 2.0}
    result = {"attempt": 0, "times": times, "seconds": 10.0}
    (folder / "result.json").write_bytes(durable.encode_json(result))
    spent = browser.get(f"/api/runs/{FIRST}/time")
    assert [(one["name"], one["share"]) for one in spent["parts"]] == [
        ("steps", 0.8),
        ("data wait", 0.2),
    ]
    assert "data.train.workers" in spent["advice"]
    assert browser.get(f"/api/runs/{FIRST}/checkpoints") == {"items": []}
    samples = [{"time": 100.0 + i, "step": i, "system/cpu": i / 10} for i in range(10)]
    (folder / "system.jsonl").write_bytes(b"".join(map(durable.encode_line, samples)))
    (series,) = browser.get(f"/api/runs/{FIRST}/system", points=2)["series"]
    assert series["x"] == [0.0, 5.0]
    assert (series["min"], series["max"], series["mean"]) == ([0.0, 0.5], [0.4, 0.9], [0.2, 0.7])
    assert series["is_exact"] is False


def test_unknown_runs_and_files_look_the_same(browser: Browser, runs: Path) -> None:
    body = browser.send("GET", "/api/runs/unknown").body
    for path in (
        "/api/runs/unknown/log",
        "/api/runs/unknown/code/x",
        f"/api/runs/{FIRST}/code/x",
        f"/api/media/{FIRST}/x",
        "/api/media/unknown/x",
        "/api/nowhere",
    ):
        done = browser.send("GET", path)
        assert (done.status, done.body) == (404, body), path


def test_a_damaged_run_is_shown(browser: Browser, runs: Path) -> None:
    folder = make_run(runs / "shop" / "t" / "20261116-000000-abcd").path
    for name in ("run.json", "status.json", "result.json", "config/provenance.json"):
        (folder / name).write_text("{broken")
    (folder / "metrics.bin").write_bytes(b"x" * 100)
    for part in ("", "/config", "/code", "/log", "/media", "/checkpoints", "/time", "/system"):
        done = browser.send("GET", f"/api/runs/20261116-000000-abcd{part}")
        assert done.status == 200, (part, done.body)
    assert browser.get("/api/runs/20261116-000000-abcd")["damage"]
