"""Launching: a file of the project or a run by its id, values of its form, once, and recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from browsing import Browser
from epochal.check.export.launch_form import LaunchForm, check_changes, read_text
from epochal.check.sections.form_fields import FormField
from epochal.config.node import from_plain
from epochal.errors import ConfigError, Place, Problem, RecordError
from epochal.launch.queue.queue import Queue
from epochal.records.metrics.points import read_json_lines
from epochal.web.app import WebApp
from epochal.web.site.launches import BuildFacts, LaunchCheck, Launches
from pooled import waiting_jobs
from unit.web.conftest import RUNS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from epochal.web.site.launches import LaunchRequest

FORM = LaunchForm(
    from_plain({}),
    (
        FormField(key="optim.lr", type="number", node=from_plain(0.1), annotation="float"),
        FormField(key="train.steps", type="number", node=from_plain(10), is_integer=True),
        FormField(key="task.flip", type="bool", node=from_plain(True)),
        FormField(key="task.kind", type="choice", node=from_plain("a"), choices=("a", "b")),
        FormField(key="extra.note", type="text", node=from_plain("x"), is_free=True),
    ),
)


class RecordingLauncher:
    """Checks with a fixed form, and adds jobs that nothing runs."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.added: list[tuple[str, dict, str]] = []
        self.problem: Problem | None = None
        self.dies_at: str = ""

    def check(self, source: Path, request: LaunchRequest) -> LaunchCheck:
        problems = [] if self.problem is None else [self.problem]
        return LaunchCheck([*problems, *self.read(request)[1]], FORM, "about it", "points")

    def read(self, request: LaunchRequest) -> tuple[dict, list[Problem]]:
        changes, written, problems = dict(request.overrides), None, []
        if request.text is not None:
            changes, written, problems = read_text(request.text, FORM)
        values, wrong = check_changes(FORM, changes, written)
        return values, [*problems, *wrong]

    def build(self, source: Path, request: LaunchRequest) -> BuildFacts:
        return BuildFacts(parameters=12, memory_bytes=96, note="rough")

    def add(
        self, source: Path, request: LaunchRequest, on_frozen: Callable[[str], None]
    ) -> list[int]:
        values, problems = self.read(request)
        if problems or self.problem is not None:
            raise ConfigError(*problems, *([] if self.problem is None else [self.problem]))
        self.added.append((source.name, values, request.name))
        return self._add(on_frozen)

    def resume(self, run_dir: Path, on_frozen: Callable[[str], None]) -> list[int]:
        if "aaaa" in run_dir.name:
            raise RecordError("the run cannot be resumed: it is finished")
        return self._add(on_frozen)

    def _add(self, on_frozen: Callable[[str], None]) -> list[int]:
        batch = self.runs / ".epochal" / "jobs" / f"batch{len(self.added)}"
        jobs = waiting_jobs(batch, 1)
        on_frozen(batch.name)
        if self.dies_at == "frozen":
            raise KeyboardInterrupt
        added = [job.id for job in Queue(self.runs).add(jobs)]
        if self.dies_at == "added":
            raise KeyboardInterrupt
        return added


@pytest.fixture
def launcher(runs: Path) -> RecordingLauncher:
    return RecordingLauncher(runs)


@pytest.fixture
def page(browser: Browser, launcher: RecordingLauncher, runs: Path) -> Browser:
    """A browser on a server that allows launching."""
    project = runs.parent
    (project / "configs").mkdir()
    (project / "configs" / "base.yaml").write_text("task: points\nmodel: net\n")
    (project / "wide.toml").write_text("[model]\ntype = 'net'\n")
    (project / "long.yaml").write_text("$BASE: configs/base.yaml\ntrain: {for: 9ep}\n")
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
    assert [one["path"] for one in found] == ["long.yaml", "wide.toml", "configs/base.yaml"]


def test_form_has_typed_fields_and_problems(page: Browser, launcher) -> None:
    launcher.problem = Problem("optim.lr", "is odd", Place("a.yaml", 3, 1), hint="write 0.1")
    form = page.get(f"/api/experiments/{experiment(page)}/form")
    assert (form["desc"], form["tag"]) == ("about it", "points")
    assert form["fields"][0] == {
        "key": "optim.lr", "label": "lr", "group": "optim", "doc": "", "value": 0.1,
        "type": "number", "is_integer": False, "is_nullable": False, "is_required": False,
        "min": None, "max": None, "choices": [], "default": False,
    }  # fmt: skip
    assert [one["type"] for one in form["fields"]] == ["number", "number", "bool", "choice", "text"]
    assert form["fields"][3]["choices"] == ["a", "b"]
    assert form["text"].startswith("optim:\n  lr: 0.1\n")
    assert form["problems"] == [
        {"key": "optim.lr", "what": "is odd", "hint": "write 0.1", "line": 3}
    ]


def test_a_check_names_lines_of_the_text_and_what_a_build_shows(page: Browser) -> None:
    path = f"/api/experiments/{experiment(page)}/check"
    wrong = page.send("POST", path, body={"text": "task:\n  flip: maybe\n", "build": True}).json
    assert wrong["problems"] == [
        {"key": "task.flip", "what": "is neither true nor false", "hint": "", "line": 2}
    ]
    assert "parameters" not in wrong
    built = page.send("POST", path, body={"text": "task: {flip: false}", "build": True}).json
    assert (built["parameters"], built["memory_bytes"], built["note"]) == (12, 96, "rough")
    assert built["is_building"] is False
    both = page.send("POST", path, body={"text": "", "overrides": {"optim.lr": 1}})
    assert both.status == 422


def test_launches_are_added_once_and_recorded(page: Browser, launcher, runs: Path) -> None:
    path = f"/api/experiments/{experiment(page)}/launch"
    body = {
        "overrides": {"optim.lr": 0.5, "task.flip": False},
        "name": "try",
        "idempotency_key": "k1",
    }
    for _ in range(2):
        assert page.send("POST", path, body=body).json == {"jobs": [{"id": 1, "run": None}]}
    assert launcher.added == [("base.yaml", {"optim.lr": 0.5, "task.flip": False}, "try")]
    other = page.send("POST", path, body=body | {"idempotency_key": "k2"})
    assert other.json == {"jobs": [{"id": 2, "run": None}]}
    lines, _ = read_json_lines(runs / ".epochal" / "launches.jsonl")
    assert [line.get("jobs") for line in lines] == [None, [1], None, [2]]
    assert (lines[0]["action"], lines[0]["what"]) == ("launch", "configs/base.yaml")
    assert lines[1]["overrides"] == {"optim.lr": 0.5, "task.flip": False}


def test_a_server_that_was_killed_while_launching_adds_nothing_twice(
    page: Browser, launcher, runs: Path
) -> None:
    path = f"/api/experiments/{experiment(page)}/launch"
    for moment, count in [("frozen", 1), ("added", 2)]:
        body = {"name": moment, "idempotency_key": moment}
        launcher.dies_at = moment
        with pytest.raises(KeyboardInterrupt):
            page.send("POST", path, body=body)
        launcher.dies_at = ""
        page.site = replace(page.site, launches=Launches(runs.parent, runs, launcher))
        page.app = WebApp(page.site)  # the next server
        assert len(page.send("POST", path, body=body).json["jobs"]) == 1, moment
        assert len(Queue(runs).list_jobs()) == count, moment


def test_runs_are_repeated_with_changes_and_resumed(page: Browser, launcher, runs: Path) -> None:
    run = RUNS[2]
    assert page.get(f"/api/runs/{run}/form")["fields"][0]["key"] == "optim.lr"
    checked = page.send("POST", f"/api/runs/{run}/check", body={"overrides": {"optim.lr": "x"}})
    assert checked.json["problems"][0]["key"] == "optim.lr"
    body = {"overrides": {"optim.lr": 0.5}, "name": "again", "idempotency_key": "k"}
    assert page.send("POST", f"/api/runs/{run}/rerun", body=body).json["jobs"][0]["id"] == 1
    assert launcher.added == [(run, {"optim.lr": 0.5}, "again")]
    assert page.send("POST", f"/api/runs/{run}/resume", body={}).json["jobs"][0]["id"] == 2
    refused = page.send("POST", f"/api/runs/{RUNS[0]}/resume", body={})
    assert (refused.status, refused.what) == (409, "the run cannot be resumed: it is finished")
    for path in ("form", "check", "rerun", "resume"):
        method = "GET" if path == "form" else "POST"
        body = {"idempotency_key": "k"} if path == "rerun" else {}
        assert page.send(method, f"/api/runs/unknown/{path}", body=body).status == 404, path
    lines, _ = read_json_lines(runs / ".epochal" / "launches.jsonl")
    actions = [(line["action"], line["what"]) for line in lines if "jobs" in line]
    assert actions == [("rerun", run), ("resume", run)]


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


TEXTS = (
    "imports: [os]", "$BASE: x.yaml", "a: !!python/object/apply:os.system [id]", "optim: {lr: x}",
    "extra: {note: '${env:HOME}'}", "extra: {note: /etc/passwd}", "task: {kind: c}", "[1]", "x: [",
    "optim: &a {lr: *a}", "record: {log_dir: /tmp}", "optim.lr: 1\noptim.lr: 2", "\0",
    "x" * 100_001,
)  # fmt: skip


def test_hostile_requests_add_nothing(page: Browser, launcher, record_property) -> None:
    path = f"/api/experiments/{experiment(page)}/launch"
    cases = [{"overrides": {key: value}} for key in KEYS for value in (1, True, 0.5, -1e300, "x")]
    cases += [{"overrides": {key: value}} for key in ("optim.lr", "task.kind") for value in VALUES]
    texts = [value for value in VALUES if value not in ("0.1", True)]
    cases += [{"overrides": {"extra.note": value}} for value in texts]
    cases += [{"text": text} for text in TEXTS]
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
    odd_name = page.send("POST", path, body={"idempotency_key": "k", "name": "启动 🎈"})
    assert odd_name.what == "name: cannot contain '🎈'"
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


def test_warming_up_checks_one_experiment_and_never_fails(
    runs: Path, launcher: RecordingLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[bool] = []
    monkeypatch.setattr("gc.freeze", lambda: frozen.append(True))
    checked: list[Path] = []

    def check(source: Path, request: LaunchRequest) -> LaunchCheck:
        checked.append(source)
        raise RecordError("damaged")

    monkeypatch.setattr(launcher, "check", check)
    for name in ("one.yaml", "two.yaml"):
        (runs.parent / name).write_text("task: x\n")
    Launches(runs.parent, runs, launcher).warm_up()
    Launches(runs.parent / "nowhere", runs, launcher).warm_up()
    assert [one.name for one in checked] == ["one.yaml"]
    assert frozen == [True, True]
