"""The web page's launcher with a real project: checks without executing, and real frozen jobs."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

import pytest

import forked
from comparing import make_run
from epochal.cli.launcher import QueueLauncher
from epochal.errors import ConfigError, RecordError
from epochal.experiment.run import run_job
from epochal.experiment.tools.plan_run import plan_job
from epochal.launch.jobs.frozen_job import read_job
from epochal.launch.jobs.seal import is_code_sealed, seal_code
from epochal.launch.pool.backlog import JobEnd
from epochal.launch.queue.queue import Queue
from epochal.launch.queue.worker import QueueBacklog
from epochal.records.code.code_manifest import read_manifest
from epochal.records.code.verify import find_code_damage
from epochal.records.folder.reader import read_folder
from epochal.web.site.launches import LaunchRequest

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
    assert (found.desc, found.tag) == ("a small one", "small")
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
    assert job.title == 'my try (small.yaml) optim.type="Adam" optim.lr=0.5'
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
    assert (job.title, frozen.parent) == ("first (rerun) optim.lr=0.25", run.name)
    assert "optim.lr=0.25" in frozen.overrides
    with pytest.raises(RecordError, match="cannot be resumed: it is finished"):
        launcher.resume(run, skip)
    assert launcher.check(run, LaunchRequest()).changed_code == ()
    parts = shop / "shop" / "parts.py"
    parts.write_text(parts.read_text() + "# changed\n")
    found = launcher.check(run, LaunchRequest())
    assert found.changed_code == ("shop/parts.py",)
    assert launcher.add(run, LaunchRequest(), skip) == [2], "with the current code"
    parts.write_text(parts.read_text().replace("class Net", "class Other"))
    assert [one.key for one in launcher.check(run, LaunchRequest()).problems] == ["model.type"]


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


@pytest.fixture
def stopped(launcher, shop: Path, epochal, file: Path) -> Path:
    """A run that was stopped on the page."""
    assert epochal("run", str(file), "--device", "cpu").code == 0
    (run,) = (shop / "runs" / "shop").glob("*/*")
    for name in ("status.json", "result.json"):
        values = json.loads((run / name).read_text())
        changed = {"status": "stopped", "reason": "stop requested: on the web page"}
        (run / name).write_text(json.dumps(values | changed))
    return run


def test_a_run_is_resumed_with_its_own_code(launcher, shop: Path, stopped: Path) -> None:
    parts = shop / "shop" / "parts.py"
    parts.write_text("raise RuntimeError('half done')\n")
    (shop / "shop" / "new.py").write_text("")
    (number,) = launcher.resume(stopped, skip)
    job = Queue(shop / "runs").get(number)
    words = ("--device", "cpu", "--resume", str(stopped))
    done = forked.run("-m", "epochal", "run-job", str(job.file), *words, cwd=shop)
    assert done.returncode == 0, done.stderr
    record = read_folder(stopped)
    assert (record.summary.status, record.summary.attempt) == ("finished", 1)
    assert record.attempts[1].changed == ()
    assert record.attempts[1].code == record.attempts[0].code
    assert [one.name for one in (stopped / "code").glob("attempt-*")] == [], "it is the same code"
    assert find_code_damage(stopped, 1) == {}


def test_other_copies_of_code_are_not_executed(launcher, shop: Path, stopped: Path) -> None:
    parts = shop / "shop" / "parts.py"
    parts.write_text(parts.read_text() + "# changed\n")
    copy, manifest = stopped / "code" / "project" / "shop" / "parts.py", "code/manifest.json"
    texts = {one: one.read_bytes() for one in (copy, stopped / manifest)}
    other = b"import os\n"

    def alter() -> None:
        copy.unlink()
        copy.write_bytes(other)

    def alter_all() -> None:
        """As a folder that others made: the copy is as its manifest says."""
        before = hashlib.sha256(texts[copy]).hexdigest().encode()
        after = hashlib.sha256(other).hexdigest().encode()
        alter()
        found = read_manifest(stopped)
        text = texts[stopped / manifest].replace(before, after)
        text = text.replace(b'"size": %d' % len(texts[copy]), b'"size": %d' % len(other))
        (stopped / manifest).write_bytes(text)
        digest = read_manifest(stopped).digest
        (stopped / manifest).write_bytes(text.replace(found.digest.encode(), digest.encode()))
        assert find_code_damage(stopped) == {}

    def restore() -> None:
        for path, data in texts.items():
            path.unlink()
            path.write_bytes(data)

    start = r"the code has changed since this run: shop/parts\.py; its own copy "
    end = rf"\n  with the current code: epochal resume {stopped.name} --allow-changed"
    jobs = shop / "runs" / ".epochal" / "jobs"
    for change, what in (
        (alter, "cannot be used"),
        (alter_all, "is not signed by you"),
        ((stopped / "code" / "seal.json").unlink, "is not signed by you"),
    ):
        change()
        with pytest.raises(RecordError, match=start + what + end):
            launcher.resume(stopped, skip)
        assert not list(jobs.glob("*")), "nothing is left"
        restore()


def test_a_seal_is_of_one_user_and_one_folder(stopped: Path, tmp_path: Path, monkeypatch) -> None:
    assert is_code_sealed(stopped)
    copied = Path(shutil.copytree(stopped, tmp_path / "copied"))
    assert not is_code_sealed(copied)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another user"))
    assert not is_code_sealed(stopped)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(stopped / "run.json"))
    seal_code(copied)
    assert not is_code_sealed(copied), "a run without a key has no seal, and continues"


def test_a_run_that_was_asked_to_stop_is_resumed_by_its_job(
    launcher, shop: Path, stopped: Path
) -> None:
    run = stopped
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
    with pytest.raises(RecordError, match="can no longer be resumed"):
        run_job(waiting.file, {"device": "cpu"})
    assert waiting.lock is not None
    waiting.lock.release()
