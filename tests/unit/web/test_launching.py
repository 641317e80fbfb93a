"""Launching: a file of the project by its id, numbers and booleans, once per key, and recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from browsing import Browser
from epochal.errors import ConfigError, Place, Problem
from epochal.records.metrics.points import read_json_lines
from epochal.web.app import WebApp
from epochal.web.launching import ConfigValue, LaunchCheck, Launches, can_be_changed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class RecordingLauncher:
    """Remembers what it was asked."""

    def __init__(self) -> None:
        self.added: list[tuple[str, tuple[str, ...], str]] = []
        self.problem: Problem | None = None

    def check(self, file: Path, overrides: Sequence[str], name: str) -> LaunchCheck:
        values = (
            ConfigValue("optim.lr", 0.1, False),
            ConfigValue("train.steps", 10, True),
            ConfigValue("task.flip", True, True),
        )
        problems = [] if self.problem is None else [self.problem]
        return LaunchCheck(problems, values, "about it")

    def add(self, file: Path, overrides: Sequence[str], name: str) -> list[int]:
        if self.problem is not None:
            raise ConfigError(self.problem)
        self.added.append((file.name, tuple(overrides), name))
        return [len(self.added)]


@pytest.fixture
def launcher() -> RecordingLauncher:
    return RecordingLauncher()


@pytest.fixture
def page(browser: Browser, launcher: RecordingLauncher, runs: Path) -> Browser:
    """A browser on a server that allows launching."""
    project = runs.parent
    (project / "configs").mkdir()
    (project / "configs" / "base.yaml").write_text("task: points\nmodel: net\n")
    (project / "wide.toml").write_text("[model]\ntype = 'net'\n")
    (project / "notes.yaml").write_text("shopping: [milk]\n")
    (project / ".hidden.yaml").write_text("task: points\n")
    (project / "link.yaml").symlink_to(project / "wide.toml")
    (runs / "copied.yaml").write_text("task: points\n")
    launches = Launches(project, runs, launcher)
    browser.site = replace(browser.site, launches=launches)
    browser.app = WebApp(browser.site)
    return browser


def experiment(page: Browser) -> str:
    found = page.get("/api/experiments")["experiments"]
    return next(one["id"] for one in found if one["path"] == "configs/base.yaml")


def test_experiments_are_config_files_of_the_project(page: Browser) -> None:
    found = page.get("/api/experiments")["experiments"]
    assert [one["path"] for one in found] == ["wide.toml", "configs/base.yaml"]


def test_form_has_numbers_booleans_and_problems(page: Browser, launcher) -> None:
    launcher.problem = Problem("optim.lr", "is odd", Place("a.yaml", 3, 1), hint="write 0.1")
    form = page.get(f"/api/experiments/{experiment(page)}/form")
    assert form["desc"] == "about it"
    assert form["fields"][0] == {
        "key": "optim.lr", "value": 0.1, "type": "number", "is_integer": False, "default": False,
    }  # fmt: skip
    assert [one["type"] for one in form["fields"]] == ["number", "number", "bool"]
    assert form["problems"] == [
        {"key": "optim.lr", "what": "is odd", "hint": "write 0.1", "line": 3}
    ]


def test_launches_are_added_once_and_recorded(page: Browser, launcher, runs: Path) -> None:
    path = f"/api/experiments/{experiment(page)}/launch"
    body = {
        "overrides": {"optim.lr": 0.5, "task.flip": False},
        "name": "try",
        "idempotency_key": "k1",
    }
    for _ in range(2):
        assert page.send("POST", path, body=body).json == {"jobs": [1]}
    assert launcher.added == [("base.yaml", ("optim.lr=0.5", "task.flip=false"), "try")]
    assert page.send("POST", path, body=body | {"idempotency_key": "k2"}).json == {"jobs": [2]}
    lines, _ = read_json_lines(runs / ".epochal" / "launches.jsonl")
    assert [line["jobs"] for line in lines] == [[1], [2]]
    assert lines[0]["experiment"] == "configs/base.yaml"
    assert lines[0]["overrides"] == ["optim.lr=0.5", "task.flip=false"]


def test_mistakes_start_nothing(page: Browser, launcher) -> None:
    launcher.problem = Problem("optim.lr", "is odd", hint="write 0.1")
    path = f"/api/experiments/{experiment(page)}"
    body = {"overrides": {}, "idempotency_key": "k"}
    done = page.send("POST", f"{path}/launch", body=body)
    assert (done.status, done.what) == (422, "optim.lr: is odd")
    checked = page.send("POST", f"{path}/check", body={"overrides": {"train.steps": 3}})
    assert checked.json["problems"][0]["what"] == "is odd"
    assert launcher.added == []


KEYS = (
    "", "optim", "optim.lr.x", "model.type", "$BASE", "record.log_dir", "--resume", "-c", "lr=1;id",
    "optim.lr=1\nx", "__class__", "PYTHONPATH", "LD_PRELOAD", "optim.lr ", "OPTIM.LR", "optim/lr",
    "../x", "imports.0", "--rdzv", "optim\u2010lr", "optim.lr\0", "a" * 5000, "\U0001f600",
    "train", "train.for", "seed", "tag", "device", "engine.step", "hooks.0.type",
)  # fmt: skip
VALUES = (
    "0.1", "$(id)", "`id`", "; id", "| id", "-1 --debug", "\n", "\0", "${env:HOME}", "/etc/passwd",
    "os.system", "http://evil", None, [], [1], {}, {"type": "x"}, True,
)  # fmt: skip
NAMES = (
    "a/b",
    "../x",
    "a\nb",
    "$(id)",
    "a;b",
    "`id`",
    "a\0b",
    "<b>",
    "a" * 61,
    "'",
    '"',
    "\x1b[2J",
)


def test_hostile_requests_add_nothing(page: Browser, launcher, record_property) -> None:
    path = f"/api/experiments/{experiment(page)}/launch"
    cases = [{"overrides": {key: value}} for key in KEYS for value in (1, True, 0.5, -1e300, "x")]
    cases += [{"overrides": {"optim.lr": value}} for value in VALUES]
    cases += [{"overrides": {"task.flip": value}} for value in (0, 1, 0.0, "true", None)]
    cases += [{"name": name} for name in NAMES]
    cases += [
        {field: "x"} for field in ("path", "module", "env", "cwd", "command", "shell", "argv")
    ]
    cases += [{"overrides": one} for one in ([], "x", None, 3, {str(i): 1 for i in range(201)})]
    cases += [{"idempotency_key": one} for one in ("x" * 101, 3, None, [])]
    for case in cases:
        done = page.send("POST", path, body={"idempotency_key": "k", **case})
        assert done.status == 422, (case, done.body)
    for number in (b"NaN", b"Infinity", b"1e400", b"-1e400"):
        body = b'{"idempotency_key": "k", "overrides": {"optim.lr": ' + number + b"}}"
        done = page.request("POST", path, headers=page.headers("POST"), body=body)
        assert done.status in (400, 422), number
    for odd in ("wide.toml", "..%2fwide.toml", "x", "0" * 16):
        body = {"idempotency_key": "k"}
        assert page.send("POST", f"/api/experiments/{odd}/launch", body=body).status == 404, odd
    assert launcher.added == []
    record_property("counted", f"{len(cases)} hostile launches refused")


def test_launching_is_off_by_default(runs: Path) -> None:
    plain = Browser(runs, capabilities=("read", "edit"))
    plain.sign_in()
    for method, path in [("GET", "/api/experiments"), ("POST", "/api/experiments/x/launch")]:
        done = plain.send(method, path, body={"idempotency_key": "k"})
        assert (done.status, done.what) == (403, "this session may not launch")
        assert done.json["error"]["hint"] == "start the server with --allow-launch"
    plain.close()


def test_sections_that_write_files_cannot_be_changed() -> None:
    assert can_be_changed("optim.lr")
    for key in ("record.exact", "record", "notify.0.port", "imports.0"):
        assert not can_be_changed(key)
