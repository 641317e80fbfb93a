"""Tests of finding the run and the checkpoint to resume."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import epochal as ep
from epochal.checkpoint.checkpoint_folder import write_checkpoint
from epochal.errors import CheckpointError, ConfigError, RecordError
from epochal.experiment.config.inputs import check_inputs, load_inputs
from epochal.experiment.resume.resume_plan import (
    ResumePlan,
    get_expanded_config,
    last_overrides,
    load_resume_point,
    plan_resume,
    project_dir,
    read_spent_before,
)
from epochal.records import RunRecord, read_run
from epochal.records.folder.reader import read_time_spent
from epochal.records.folder.record_digests import add_digest
from epochal.records.layout.process import process_token
from epochal.records.metrics.time_spent import TimeSpent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from epochal.experiment.config.choices import Choices


@pytest.fixture
def trained(shop: Path) -> Path:
    """A run that says it was interrupted, and has no checkpoint."""
    result = ep.run("config.yaml", raise_errors=True)
    assert result.dir is not None
    shutil.rmtree(result.dir / "checkpoints")
    set_status(result.dir, "interrupted")
    return result.dir


@pytest.fixture
def saved(trained: Path) -> Path:
    """The same with a checkpoint."""
    write(trained, "saved", 1)
    return trained


def set_status(folder: Path, status: str, **fields: object) -> None:
    known = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(known | {"status": status} | fields))


def plan(*overrides: str, **choices: Any) -> ResumePlan | None:
    wanted: Choices = choices  # type: ignore[assignment]  # any of them
    return plan_resume(check_inputs(load_inputs("config.yaml", overrides, wanted, {}), None))


def resume(record: RunRecord, chosen: str = "last", **more: Any) -> ResumePlan:
    known: dict[str, Any] = {"overrides": (), "changes": (), "allows_changes": False}
    return ResumePlan(record=record, chosen=chosen, **{**known, **more})


def write(
    folder: Path, name: str, step: int, *, state: Mapping[str, Any] | None = None, **facts: Any
) -> Path:
    state = {"model": torch.zeros(3) + step, "log": {"points": step * 2}, **(state or {})}
    return write_checkpoint(folder / "checkpoints", name, state, {"step": step, **facts}).path


def test_run_is_found_by_its_folder_and_by_its_name(saved: Path) -> None:
    for name in (saved, saved.name, saved.name[-4:], "last"):
        found = plan(resume=name)
        assert found is not None
        assert found.record.path.absolute() == saved.absolute()
        assert (found.overrides, found.changes, found.chosen) == ((), (), "last")


def test_folder_of_a_checkpoint_names_its_run_too(trained: Path) -> None:
    path = write(trained, "a", 1)
    found = plan(resume=path)
    assert found is not None
    assert (found.record.path, found.chosen) == (trained, "a")
    found = plan(resume=path, resume_from="best")
    assert found is not None
    assert found.chosen == "best"


def test_a_missing_run_is_an_error(trained: Path) -> None:
    with pytest.raises(RecordError, match="no such run"):
        plan(resume="2020")


def test_changes_are_listed_refused_and_allowed(saved: Path) -> None:
    with pytest.raises(ConfigError, match=r"optim\.lr: 0\.05 -> 0\.5"):
        plan("optim.lr=0.5", resume=saved)
    found = plan("optim.lr=0.5", resume=saved, allow_changed=True)
    assert found is not None
    assert [str(change) for change in found.changes] == ["optim.lr: 0.05 -> 0.5"]
    assert found.overrides == ("optim.lr=0.5",)


def test_allowed_changes_are_recorded(saved: Path) -> None:
    found = plan("train.for=9ep", resume=saved)
    assert found is not None
    assert found.overrides == ('train.for="9ep"',)


def test_changes_of_earlier_attempts_belong_to_the_config(saved: Path) -> None:
    run = json.loads((saved / "run.json").read_text())
    run["attempts"].append({"attempt": 1, "overrides": ["optim.lr=0.5"]})
    (saved / "run.json").write_text(json.dumps(add_digest(run)))
    with pytest.raises(ConfigError, match=r"optim\.lr: 0\.5 -> 0\.05"):
        plan(resume=saved)
    found = plan("optim.lr=0.5", resume=saved)
    assert found is not None
    assert found.overrides == ("optim.lr=0.5",)
    assert last_overrides(read_run(saved)) == ("optim.lr=0.5",)


def test_a_record_that_is_not_as_the_run_wrote_it_is_refused(saved: Path) -> None:
    def halved(path: Path) -> None:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    def replace(before: str, after: str) -> Callable[[Path], None]:
        return lambda path: path.write_text(path.read_text().replace(before, after)) and None

    table: dict[str, tuple[str, Callable[[Path], None], str]] = {
        "edited": ("config/expanded.yaml", replace("lr: 0.05", "lr: 0.5"), "edited or damaged"),
        "truncated": ("config/expanded.yaml", halved, "edited or damaged"),
        "emptied": ("config/expanded.yaml", lambda path: path.write_text("") and None, "edited"),
        "missing": ("config/expanded.yaml", Path.unlink, "is missing"),
        "provenance": ("config/provenance.json", halved, "undo the change, or resume regardless"),
        "no provenance": ("config/provenance.json", Path.unlink, "is missing"),
        "facts": ("run.json", replace('"seed": ', '"seed": 1'), "edited or damaged"),
        "digests": ("run.json", replace('"config_digests"', '"others"'), "edited or damaged"),
    }
    for case, (name, damage, text) in table.items():
        path = saved / name
        before = path.read_bytes()
        damage(path)
        with pytest.raises(CheckpointError) as caught:
            ep.resume(saved)
        assert str(path) in str(caught.value), case
        assert text in str(caught.value), case
        path.write_bytes(before)
    assert plan(resume=saved) is not None


def test_the_first_config_restores_the_one_in_the_record(
    saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved / "config" / "expanded.yaml"
    before = path.read_bytes()
    path.write_bytes(before[:99])
    with pytest.raises(CheckpointError, match=r"epochal run config\.yaml --resume"):
        ep.resume(saved)
    with pytest.raises(CheckpointError, match="edited or damaged"):
        plan("optim.lr=0.5", resume=saved)
    assert path.read_bytes() == before[:99]
    found = plan(resume=saved)
    assert found is not None
    assert (path.read_bytes(), found.changes) == (before, ())
    assert f"{path}: was edited or damaged; restored" in caplog.text


def test_changed_files_of_a_record_may_be_allowed(saved: Path) -> None:
    path = saved / "config" / "expanded.yaml"
    path.write_text(path.read_text().replace("lr: 0.05", "lr: 0.5"))
    found = plan("optim.lr=0.5", resume=saved, allow_changed=True)
    assert found is not None
    changes = [str(change) for change in found.changes]
    assert changes == ["config/expanded.yaml: 'as recorded' -> 'changed'"]


def test_record_without_digests_is_resumed(saved: Path) -> None:
    run = json.loads((saved / "run.json").read_text())
    older = {name: value for name, value in run.items() if "digest" not in name}
    assert len(older) == len(run) - 2
    (saved / "run.json").write_text(json.dumps(older))
    assert plan(resume=saved) is not None


def test_changed_code_is_refused_by_name(saved: Path, shop: Path) -> None:
    parts = shop / "shop" / "parts.py"
    parts.write_text(parts.read_text() + "\n")
    with pytest.raises(ConfigError, match=r"code shop/parts\.py: "):
        plan(resume=saved)
    assert plan(resume=saved, allow_changed=True) is not None


def test_a_finished_run_is_resumed_only_with_another_length(saved: Path) -> None:
    set_status(saved, "finished", reason="max_epochs")
    with pytest.raises(ConfigError, match=r"has already finished \(finished, max_epochs\)"):
        plan(resume=saved)
    assert plan("train.for=3ep", resume=saved) is not None
    set_status(saved, "stopped", reason="my own")
    assert plan(resume=saved) is not None


def test_only_a_recorded_training_is_resumed_if_asked_for(shop: Path) -> None:
    assert plan() is None
    with pytest.raises(ConfigError, match="a run is resumed in its own folder"):
        plan(resume="x", no_file=True)
    with pytest.raises(ConfigError, match="only a training can be resumed, and the runner is"):
        plan("runner=test", resume="x")


def test_auto_finds_the_newest_unfinished_run(
    trained: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert plan(resume="auto") is None
    assert "has no checkpoint; starting a new run" in caplog.text
    write(trained, "a", 1)
    found = plan(resume="auto")
    assert found is not None
    assert found.record.path.absolute() == trained.absolute()
    assert plan("train.for=9ep", resume="auto") is not None
    caplog.clear()
    assert plan("optim.lr=0.5", resume="auto") is None
    assert plan("tag=other", resume="auto") is None
    set_status(trained, "finished")
    assert plan(resume="auto") is None
    assert "no unfinished run of this config" in caplog.text


def test_config_and_project_are_found_in_the_record(trained: Path, shop: Path) -> None:
    record = read_run(trained)
    assert get_expanded_config(record).name == "expanded.yaml"
    assert project_dir(record) == shop
    get_expanded_config(record).unlink()
    with pytest.raises(CheckpointError, match=r"expanded\.yaml: is missing"):
        get_expanded_config(record)


def test_newest_checkpoint_is_taken(trained: Path) -> None:
    write(trained, "b", 1)
    write(trained, "a", 2)
    point, notes = load_resume_point(resume(read_run(trained)))
    assert (point.path.name, point.manifest.step) == ("a", 2)
    assert torch.equal(point.state["model"], torch.zeros(3) + 2)
    assert notes == []


def test_best_and_named_checkpoints_are_taken(trained: Path) -> None:
    facts = {"monitor": "val/acc", "mode": "max"}
    for step, value in ((1, 0.5), (2, 0.9), (3, 0.7)):
        write(trained, f"step-{step}", step, metrics={"val/acc": value}, **facts)
    record = read_run(trained)
    assert load_resume_point(resume(record, "best"))[0].path.name == "step-2"
    assert load_resume_point(resume(record, "step-1"))[0].path.name == "step-1"
    with pytest.raises(CheckpointError, match="step-9: no such checkpoint\n  did you mean"):
        load_resume_point(resume(record, "step-9"))


def test_damaged_checkpoints_are_reported_and_renamed(trained: Path) -> None:
    write(trained, "old", 1)
    newest = write(trained, "new", 2)
    with (newest / "tensors.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    point, notes = load_resume_point(resume(read_run(trained)))
    assert point.path.name == "old"
    assert "new/tensors.safetensors: damaged: its bytes were changed" in notes[0]
    assert "renamed to new.damaged" in notes[0]
    assert (trained / "checkpoints" / "new.damaged").is_dir()


def test_only_a_run_that_never_had_a_checkpoint_starts_again(trained: Path) -> None:
    def starts_again(**choices: str) -> bool:
        found = plan(resume=trained, **choices)
        return found is not None and found.starts_again

    assert not starts_again()  # its checkpoints were deleted
    (trained / "events.jsonl").unlink()
    assert starts_again()
    assert not starts_again(resume_from="best")
    set_status(trained, "running", pid=os.getpid(), process=process_token(os.getpid()))
    assert starts_again()  # the lease refuses it later
    set_status(trained, "failed")
    (write(trained, "only", 1) / "manifest.json").unlink()
    assert not starts_again()  # the damage is reported later


def test_missing_and_damaged_checkpoints_are_refused(trained: Path) -> None:
    record = read_run(trained)
    with pytest.raises(CheckpointError, match="has no checkpoint to resume from"):
        load_resume_point(resume(record))
    path = write(trained, "only", 1)
    with pytest.raises(CheckpointError, match="there is no best checkpoint"):
        load_resume_point(resume(record, "best"))
    (path / "state.json").unlink()
    with pytest.raises(CheckpointError, match="all 1 checkpoints are damaged"):
        load_resume_point(resume(record))
    assert path.is_dir()


SPENT = [
    # It ended at the checkpoint's step: saving took a second.
    ("preempted", 31.0, 4, TimeSpent({"steps": 31.0}, 2.0, 1)),
    # Its last steps are done again.
    ("failed", 35.0, 6, TimeSpent({"steps": 35.0}, 7.0, 1)),
    ("lost", 35.0, 6, TimeSpent({"steps": 35.0}, 7.0, 2)),
    # It was killed before it recorded as much as its checkpoint has.
    ("lost", 25.0, 3, TimeSpent({"steps": 30.0}, 2.0, 2)),
    ("running", 25.0, 3, TimeSpent({"steps": 30.0}, 2.0, 2)),
]


def test_time_of_earlier_attempts_comes_from_the_record_or_the_checkpoint(trained: Path) -> None:
    at = TimeSpent({"steps": 30.0}, 2.0, 1)
    write(trained, "saved", 4, state={"clock": {"spent": at.to_fields()}})
    (trained / "result.json").unlink()
    for status, seconds, step, spent in SPENT:
        set_status(trained, status, step=step, **TimeSpent({"steps": seconds}, 2.0, 1).to_fields())
        if status == "running":
            set_status(trained, status, pid=os.getpid(), process=process_token(os.getpid()))
        record = read_run(trained)
        point, _ = load_resume_point(resume(record))
        assert read_spent_before(record, point) == spent, (status, seconds)


def test_a_checkpoint_of_an_older_version_has_no_time(saved: Path) -> None:
    record = read_run(saved)
    point, _ = load_resume_point(resume(record))
    assert read_spent_before(record, point) == read_time_spent(record)
    assert read_spent_before(record, None).seconds > 0


def test_an_attempt_records_its_checkpoint(trained: Path) -> None:
    write(trained, "a", 4, attempt=2, epoch=1)
    plan = resume(read_run(trained), overrides=("x=1",))
    attempt = plan.begin(load_resume_point(plan)[0])
    assert (attempt.attempt, attempt.origin, attempt.step) == (3, 2, 4)
    assert (attempt.checkpoint, attempt.kept_points, attempt.overrides) == ("a", 8, ("x=1",))
    assert attempt.cause == "resumed"
    assert plan.begin(None, is_supervised=True).cause == "retried"
