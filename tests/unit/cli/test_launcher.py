"""The web page's launcher with a real project: checks without executing, and real frozen jobs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from comparing import make_run
from epochal.cli.launcher import QueueLauncher
from epochal.errors import ConfigError, RecordError
from epochal.experiment.run import run_job
from epochal.experiment.tools.plan_run import plan_job
from epochal.launch.jobs.frozen_job import read_job
from epochal.launch.pool.backlog import JobEnd
from epochal.launch.queue.queue import Queue
from epochal.launch.queue.worker import QueueBacklog
from epochal.records.folder.reader import read_folder
from epochal.web.launching import LaunchRequest

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
project: shop
tag: small
desc: a small one
task: {type: shop.parts.Points, batch_size: 8}
model: {type: shop.parts.Net}
optim: {type: SGD, lr: 0.1}
train: {for: 2ep}
"""


@pytest.fixture
def file(shop: Path) -> Path:
    path = shop / "small.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def launcher(file: Path, monkeypatch: pytest.MonkeyPatch) -> QueueLauncher:
    monkeypatch.chdir(file.parent)
    return QueueLauncher(file.parent / "runs")


def skip(batch: str) -> None:
    pass


def test_a_form_is_made_without_executing_the_project(launcher, file: Path) -> None:
    found = launcher.check(file, LaunchRequest())
    assert list(found.problems) == []
    assert found.desc == "a small one"
    assert found.form is not None
    fields = {one.key: one for one in found.form.fields}
    names = ["seed", "task.batch_size", "model", "optim", "schedule", "train.for"]
    assert [*fields] == names
    assert fields["task.batch_size"].doc == "Points in a batch."
    assert "shop.parts" not in sys.modules


def test_secrets_of_a_config_are_no_fields(launcher, file: Path) -> None:
    file.write_text(CONFIG + "extra: {api_key: abc123, note: hi}\nlaunch: {expose: [extra.note]}\n")
    found = launcher.check(file, LaunchRequest())
    assert found.form is not None
    assert [one.key for one in found.form.fields] == ["extra.note"]
    file.write_text(file.read_text().replace("extra.note", "extra.api_key"))
    found = launcher.check(file, LaunchRequest())
    assert found.form is not None
    assert found.form.fields == ()


def test_checked_experiments_become_jobs(launcher, file: Path) -> None:
    runs = file.parent / "runs"
    wrong = LaunchRequest(overrides={"task.batch_size": 0.5})
    assert [one.key for one in launcher.check(file, wrong).problems] == ["task.batch_size"]
    with pytest.raises(ConfigError, match="batch_size"):
        launcher.add(file, wrong, skip)
    assert Queue(runs).list_jobs() == []
    batches: list[str] = []
    request = LaunchRequest(text="optim: {type: Adam, lr: 0.5}", name="my try")
    assert launcher.add(file, request, batches.append) == [1]
    (job,) = Queue(runs).list_jobs("waiting")
    assert job.title == "my try (small.yaml)"
    assert [job.file.parent.name] == batches
    frozen = read_job(job.file)
    assert frozen.overrides == ('optim.type="Adam"', "optim.lr=0.5")


def test_problems_of_the_real_check_have_the_line_of_the_text(launcher, file: Path) -> None:
    request = LaunchRequest(text="train:\n  for: 2ep\noptim:\n  type: Adam\n  lr: -1\n")
    (problem,) = launcher.check(file, request).problems
    assert (problem.key, problem.place.line, problem.place.name) == ("optim.lr", 5, "text")


def test_a_build_counts_parameters_and_memory(launcher, file: Path) -> None:
    """In this process: another one would import torch again."""
    runs = file.parent / "runs"
    launcher.add(file, LaunchRequest(overrides={"optim": "Adam"}), skip)
    (job,) = Queue(runs).list_jobs()
    plan = plan_job(job.file, device="cpu")
    assert plan.parameters is not None
    assert plan.parameters > 0
    assert plan.memory_bytes is not None
    assert abs(plan.memory_bytes - 16 * plan.parameters) < 64, "weights, gradients, two moments"


def test_a_run_is_repeated_with_changes(launcher, shop: Path, epochal, file: Path) -> None:
    assert epochal("run", str(file), "--device", "cpu", "--fast", "--name", "first").code == 0
    (run,) = (shop / "runs" / "shop").glob("*/*")
    form = launcher.check(run, LaunchRequest()).form
    assert form is not None
    assert [one.key for one in form.fields][:3] == ["seed", "task.batch_size", "model"]
    assert "engine.precision" not in [one.key for one in form.fields], "it was a default"
    assert launcher.add(run, LaunchRequest(overrides={"optim.lr": 0.25}), skip) == [1]
    (job,) = Queue(shop / "runs").list_jobs()
    frozen = read_job(job.file)
    assert (job.title, frozen.parent) == ("first (rerun)", run.name)
    assert "optim.lr=0.25" in frozen.overrides
    with pytest.raises(RecordError, match="cannot be resumed: it is finished"):
        launcher.resume(run, skip)
    parts = shop / "shop" / "parts.py"
    parts.write_text(parts.read_text() + "# changed\n")
    with pytest.raises(RecordError, match=r"the code has changed since this run: shop/parts\.py"):
        launcher.check(run, LaunchRequest())


def test_an_interrupted_run_is_resumed_once(launcher, shop: Path, monkeypatch) -> None:
    folder = make_run(shop / "runs" / "shop" / "t" / "20261114-100000-aaaa", status="stopped").path
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(status | {"reason": "stop requested: by me"}))
    facts = json.loads((folder / "run.json").read_text()) | {"project_dir": str(shop)}
    (folder / "run.json").write_text(json.dumps(facts))
    (first,) = launcher.resume(folder, skip)
    assert launcher.resume(folder, skip) == [first], "it is in the queue already"
    job = Queue(shop / "runs").get(first)
    assert job.run_dir == folder
    assert job.title.endswith("(resumed)")
    assert read_job(job.file).is_resume
    (folder / "run.json").write_text(json.dumps(facts | {"project_dir": "/elsewhere"}))
    Queue(shop / "runs").remove(first)
    with pytest.raises(RecordError, match="not of this project"):
        launcher.resume(folder, skip)


def test_a_run_that_was_asked_to_stop_is_resumed_by_its_job(
    launcher, shop: Path, epochal, file: Path
) -> None:
    assert epochal("run", str(file), "--device", "cpu").code == 0
    (run,) = (shop / "runs" / "shop").glob("*/*")
    for name in ("status.json", "result.json"):
        values = json.loads((run / name).read_text())
        changed = {"status": "stopped", "reason": "stop requested: on the web page"}
        (run / name).write_text(json.dumps(values | changed))
    (number,) = launcher.resume(run, skip)
    queue = Queue(shop / "runs")
    backlog = QueueBacklog(queue)
    waiting = backlog.take()
    assert waiting is not None
    assert (waiting.key, waiting.resume) == (number, run)
    backlog.end(waiting, JobEnd(code=75, run_dir=run, was_stopped=True))
    assert queue.get(number).state == "waiting", "it was stopped before it began"
    done = run_job(waiting.file, {"device": "cpu"}, resume=waiting.resume)
    assert done.status == "finished"
    assert read_folder(run).summary.attempt == 1
    with pytest.raises(RecordError, match="cannot be resumed any more"):
        run_job(waiting.file, {"device": "cpu"})
    assert waiting.lock is not None
    waiting.lock.release()
