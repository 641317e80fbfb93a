"""Tests of opening and closing records."""

from __future__ import annotations

import json
import os
import shutil
import stat
from typing import TYPE_CHECKING, Any

import pytest

from epochal import durable
from epochal.check import CheckReport, check
from epochal.checkpoint.checkpoint_folder import write_checkpoint
from epochal.config import Config, load
from epochal.engine import RunResult
from epochal.errors import Preempted, RecordError
from epochal.experiment.record.open_record import open_record
from epochal.experiment.resume.resume_plan import ResumePlan
from epochal.records import find_runs, read_run
from epochal.records.folder.folder import RunFolder, create_run_folder
from epochal.records.layout.lease import Lease
from epochal.records.metrics.time_spent import TimeSpent
from failing_disk import full_disk, full_unless_gone
from past_runs import change, gone
from small_project import run_folders, tree

if TYPE_CHECKING:
    from pathlib import Path


def checked(*overrides: str) -> tuple[Config, CheckReport]:
    config = load("config.yaml", overrides=overrides)
    report = check(config)
    assert not report.problems
    return config, report


def resume_a_killed_run(config: Config, report: CheckReport) -> ResumePlan:
    with open_record(config, report, is_kept=True) as record:
        assert record.dir is not None
    change(record.dir / "status.json", status="running", **gone())
    return plan_for(record.dir, has_state=False)


def plan_for(folder: Path, *, has_state: bool = True) -> ResumePlan:
    return ResumePlan(
        record=read_run(folder),
        chosen="last",
        overrides=(),
        changes=(),
        allows_changes=False,
        has_state=has_state,
    )


def status_of(folder: Path) -> str:
    status: str = json.loads((folder / "status.json").read_text())["status"]
    return status


def test_record_starts_with_configs_and_ends_with_a_result(shop: Path) -> None:
    with open_record(*checked(), is_kept=True) as record:
        assert record.dir is not None
        assert status_of(record.dir) == "starting"
        assert load(record.dir / "config" / "expanded.yaml").root.to_plain()["tag"] == "shop"
        record.write_start({"seed": 3})
        record.write_end(RunResult(status="stopped", reason="early_stop", steps=5))
    assert json.loads((record.dir / "run.json").read_text())["seed"] == 3
    result = json.loads((record.dir / "result.json").read_text())
    assert (result["status"], result["steps"]) == ("stopped", 5)
    assert not {"config", "value", "dir"} & result.keys()
    assert status_of(record.dir) == "stopped"


def test_a_run_folder_is_private_unless_the_project_says_otherwise(shop: Path) -> None:
    before = os.umask(0o022)
    try:
        for settings, expected in (("", 0o700), ("private_runs = false", 0o755)):
            (shop / "epochal.toml").write_text(settings)
            with open_record(*checked(), is_kept=True) as record:
                assert record.dir is not None
                assert stat.S_IMODE(record.dir.stat().st_mode) == expected, settings
    finally:
        os.umask(before)


def test_a_run_preempted_at_its_start_has_that_status(shop: Path) -> None:
    with pytest.raises(Preempted), open_record(*checked(), is_kept=True):
        raise Preempted
    (folder,) = run_folders(shop)
    assert status_of(folder) == "preempted"


def test_an_attempt_killed_at_its_start_keeps_the_time_of_earlier_ones(
    shop: Path,
) -> None:
    with open_record(*checked(), is_kept=True) as record:
        record.writer.write_status("running", step=6, **TimeSpent({"steps": 35.0}).to_fields())
    assert record.dir is not None
    state = {"clock": {"spent": TimeSpent({"steps": 30.0}).to_fields()}, "log": {"points": 0}}
    write_checkpoint(record.dir / "checkpoints", "saved", state, {"step": 4})
    for killed in (1, 2):
        change(record.dir / "status.json", **gone())
        plan = plan_for(record.dir)
        with open_record(*checked(), is_kept=True, resume_plan=plan) as again:
            status = json.loads((record.dir / "status.json").read_text())
            assert again.spent == TimeSpent({"steps": 35.0}, redone_seconds=5.0, killed=killed)
        assert status.items() >= again.spent.to_fields().items()


def test_nothing_is_written_without_a_record(shop: Path) -> None:
    before = tree(shop)
    with open_record(*checked(), is_kept=False) as record:
        record.write_start({"seed": 3})
        record.add_meta({"classes": ["a"]})
        record.write_end(RunResult(status="finished", reason="max_epochs"))
    assert record.dir is None
    assert tree(shop) == before


def test_facts_about_the_data_are_added_to_those_of_the_start(shop: Path) -> None:
    with open_record(*checked(), is_kept=True) as record:
        record.write_start({"seed": 3})
        record.add_meta({"classes": ("a", "b"), "scale": object()})
    assert record.dir is not None
    facts = json.loads((record.dir / "run.json").read_text())
    assert facts["seed"] == 3
    assert facts["meta"] == {"classes": ["a", "b"], "scale": "<builtins.object>"}


def test_unusual_values_read_back_from_disk(shop: Path) -> None:
    values = [".nan", "[.nan, .inf, -.inf]", '"$${odd}"', "null", "1e-7"]
    with (shop / "config.yaml").open("a") as file:
        file.write(f"extra: {{odd: [{', '.join(values)}]}}\n")
    with open_record(*checked(), is_kept=True) as record:
        assert record.dir is not None


def test_an_exact_folder_that_is_not_empty_is_refused(shop: Path) -> None:
    (shop / "taken").mkdir()
    (shop / "taken" / "file").write_text("mine")
    changes = ("record.log_dir=taken", "record.exact=true")
    with pytest.raises(RecordError, match="taken"), open_record(*checked(*changes), is_kept=True):
        raise AssertionError("must not come here")
    assert (shop / "taken" / "file").read_text() == "mine"


def test_a_record_that_reads_back_wrongly_has_failed(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(*_: object) -> str:
        return "tag: another\n"

    monkeypatch.setattr("epochal.experiment.record.open_record.dump", other)
    with (
        pytest.raises(RecordError, match="reads back as another config"),
        open_record(*checked(), is_kept=True),
    ):
        raise AssertionError("must not come here")
    (status,) = shop.rglob("status.json")
    assert status_of(status.parent) == "failed"


def test_a_full_disk_at_the_start_leaves_nothing_or_a_failed_run(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = checked("record.code=false")
    found, messages = [], []
    for room in range(100):
        monkeypatch.setattr(durable.system, "operations", full_disk(room))
        try:
            with open_record(*inputs, is_kept=True) as record:
                record.write_start({})
                break
        except RecordError as error:
            messages.append(str(error))
        found.append([run.status for run in find_runs(shop / "runs")])
        shutil.rmtree(shop / "runs", ignore_errors=True)
    assert room > 10
    assert found[0] == []
    assert all("free some space there" in text for text in messages)
    assert all(statuses in ([], ["failed"]) for statuses in found)


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_full_disk_has_reserved_space_for_the_result(
    shop: Path, monkeypatch: pytest.MonkeyPatch, is_resumed: bool
) -> None:
    inputs = checked("record.code=false")
    plan = resume_a_killed_run(*inputs) if is_resumed else None
    with open_record(*inputs, is_kept=True, resume_plan=plan) as record:
        assert record.dir is not None
        disk = full_unless_gone(record.dir / "reserve")
        monkeypatch.setattr(durable.system, "operations", disk)
        with pytest.raises(RecordError, match="free some space there"):
            record.writer.write_status("running")
        record.write_end(RunResult(status="failed", reason="disk_full", message="full"))
    assert read_run(record.dir).summary.reason == "disk_full"
    assert read_run(record.dir).result["message"] == "full"
    assert not (record.dir / "reserve").exists()


def test_the_folder_of_another_process_stays(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def create(*args: Any, **names: Any) -> RunFolder:
        folder = create_run_folder(*args, **names)
        Lease(folder.path)  # of another process
        return folder

    monkeypatch.setattr("epochal.experiment.record.open_record.create_run_folder", create)
    changes = ("record.log_dir=taken", "record.exact=true")
    with (
        pytest.raises(RecordError, match="is working on this run"),
        open_record(*checked(*changes), is_kept=True),
    ):
        raise AssertionError("must not come here")
    assert (shop / "taken" / "lease.json").exists()


def test_a_secret_that_equals_a_key_does_not_prevent_a_run(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_PASSWORD", "checkpoint")  # which is also a key of every config
    with open_record(*checked(), is_kept=True) as record:
        assert record.dir is not None
    expanded = load(record.dir / "config" / "expanded.yaml")
    assert not expanded.problems
    assert "checkpoint" in expanded.root.mapping
