"""Tests of epochal.records.folder.writer; both writers are put through the same calls."""

from __future__ import annotations

import inspect
import json
import math
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from epochal import durable
from epochal.errors import RecordError
from epochal.records.folder.folder import RecordOptions, RunFolder, create_run_folder
from epochal.records.folder.writer import NullWriter, RunWriter, Writer
from epochal.records.layout.process import host_name
from epochal.records.metrics.points import read_series
from failing_disk import ERRORS, Faults


@dataclass(frozen=True)
class Text:
    path: Path | None
    text: str


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run_folder(RecordOptions(), project="p", tag="t", base=tmp_path / "base")


@pytest.fixture
def writer(folder: RunFolder) -> RunWriter:
    return RunWriter(folder)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def use(writer: Writer) -> None:
    """Everything a run does with its record."""
    writer.write_readme("tag", "why")
    writer.write_config([Text(Path("a.yaml"), "seed: 0")], "seed: 0\n", "yaml", {"seed": []})
    writer.write_observed({"model": {"width": 1}})
    writer.write_run({"tag": "tag"})
    writer.write_status("starting")
    writer.log({"loss": 1.0}, 1)
    writer.log({"loss": 0.5}, 2)
    writer.event("saved", step=2)
    assert writer.go_back(checkpoint="step-2", origin=0, step=2, points=2) == 1
    writer.write_status("running", step=2, epoch=1)
    writer.write_result({"status": "finished"})
    writer.write_status("finished", reason="max_steps")
    writer.close()
    writer.close()


def test_the_null_writer_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("an operation on the disk")

    forbidden = durable.Operations(refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse)  # type: ignore[arg-type]  # they are never called
    monkeypatch.setattr(durable.system, "operations", forbidden)
    monkeypatch.chdir(tmp_path)
    use(NullWriter())
    assert not list(tmp_path.iterdir())
    assert NullWriter().path is None


def test_the_run_writer_writes_all_files(writer: RunWriter, folder: RunFolder) -> None:
    use(writer)
    files = {str(p.relative_to(folder.path)) for p in folder.path.rglob("*") if p.is_file()}
    assert files == {
        *("README.md", "run.json", "status.json", "result.json"),
        *("metrics.bin", "series.jsonl", "events.jsonl"),
        *("config/written/a.yaml", "config/sources.json", "config/expanded.yaml"),
        *("config/provenance.json", "config/observed.json"),
    }
    assert writer.path == folder.path


def test_writers_have_the_same_interface() -> None:
    names = {name for name in vars(Writer) if not name.startswith("_")}
    for implementation in [RunWriter, NullWriter]:
        assert {name for name in vars(implementation) if not name.startswith("_")} == names
    for name in names:
        wanted, here = getattr(Writer, name), getattr(RunWriter, name)
        if callable(wanted):
            assert inspect.signature(wanted) == inspect.signature(here)
        else:
            assert isinstance(here, property)


def test_readme_has_the_tag_as_title_and_the_description_as_text(
    writer: RunWriter, folder: RunFolder
) -> None:
    writer.write_readme("digits\n mlp", "Does width help?\n\nSee last week.\n")
    lines = (folder.path / "README.md").read_text().splitlines()
    assert lines[:5] == ["# digits mlp", "", "Does width help?", "", "See last week."]
    assert any("np.fromfile(" in line for line in lines)


def test_readme_without_description_has_a_prompt_and_is_never_overwritten(
    writer: RunWriter, folder: RunFolder
) -> None:
    writer.write_readme("", "  ")
    lines = (folder.path / "README.md").read_text().splitlines()
    assert lines[0] == "# untitled"
    assert lines[2] == "_Write here what this run is for and what came of it._"
    (folder.path / "README.md").write_text("my notes")
    writer.write_readme("tag", "second")
    assert (folder.path / "README.md").read_text() == "my notes"


def test_config_files_keep_their_relative_paths(
    writer: RunWriter, folder: RunFolder, tmp_path: Path
) -> None:
    sources = [
        Text(tmp_path / "exp" / "digits.yaml", "$BASE: ../base/base.yaml"),
        Text(tmp_path / "exp" / ".." / "base" / "base.yaml", "seed: 1"),
        Text(tmp_path / "exp" / "base.yaml", "seed: 2"),
    ]
    writer.write_config(sources, "seed: 1\n", "yaml", {"seed": [{"value": 1}]})
    written = folder.config_dir / "written"
    assert (written / "exp" / "digits.yaml").read_text() == "$BASE: ../base/base.yaml"
    assert (written / "base" / "base.yaml").read_text() == "seed: 1"
    assert (written / "exp" / "base.yaml").read_text() == "seed: 2"
    listed = read_json(folder.config_dir / "sources.json")
    assert listed[0] == {"file": "written/exp/digits.yaml", "path": str(sources[0].path)}
    assert (folder.config_dir / "expanded.yaml").read_text() == "seed: 1\n"
    assert read_json(folder.config_dir / "provenance.json") == {"seed": [{"value": 1}]}


def test_configs_may_have_a_relative_path_or_be_missing(
    writer: RunWriter, folder: RunFolder
) -> None:
    writer.write_config([Text(Path("exp/a.toml"), "seed = 1")], "seed = 1", "toml", {})
    assert (folder.config_dir / "written" / "a.toml").read_text() == "seed = 1"
    writer.write_config([], "seed: 1", "yaml", {})


def test_run_json_says_when_and_what(writer: RunWriter, folder: RunFolder) -> None:
    writer.write_run({"tag": "t", "seed": 3, "nested": {"path": Path("x")}})
    run = read_json(folder.path / "run.json")
    assert run["id"] == folder.id
    assert run["format"] == 1
    assert run["nested"] == {"path": "x"}
    assert datetime.fromisoformat(run["created"]).utcoffset() == timedelta(0)


def test_status_keeps_the_fields_of_earlier_calls(writer: RunWriter, folder: RunFolder) -> None:
    writer.write_status("starting")
    first = read_json(folder.path / "status.json")
    writer.write_status("running", step=5, epoch=1)
    writer.write_status("running", step=6)
    status = read_json(folder.path / "status.json")
    assert {key: status[key] for key in ("status", "reason", "step", "epoch", "ended")} == {
        **{"status": "running", "reason": "", "step": 6, "epoch": 1, "ended": None},
    }
    assert (status["pid"], status["host"]) == (os.getpid(), host_name())
    assert status["started"] == first["started"] <= status["updated"]


def test_status_of_an_ended_run_has_its_time(writer: RunWriter, folder: RunFolder) -> None:
    for end in ("finished", "stopped", "failed", "interrupted"):
        writer.write_status("running")
        writer.write_status(end, reason="because")
        status = read_json(folder.path / "status.json")
        assert datetime.fromisoformat(status["ended"]) >= datetime.fromisoformat(status["started"])
        assert status["reason"] == "because", end


def test_points_are_synced_before_the_status(
    writer: RunWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    writer.log({"a": 1.0}, 1)
    real_sync, real_write = writer._metrics.sync, durable.write_json
    monkeypatch.setattr(writer._metrics, "sync", lambda: (order.append("sync"), real_sync()))
    monkeypatch.setattr(
        durable, "write_json", lambda *args: (order.append("status"), real_write(*args))
    )
    writer.write_status("running", step=1)
    assert order == ["sync", "status"]


def test_results_and_events_may_hold_any_value(writer: RunWriter, folder: RunFolder) -> None:
    writer.write_result({"metrics": {"loss": math.nan, "acc": math.inf}})
    text = (folder.path / "result.json").read_text()
    metrics = json.loads(text, parse_constant=pytest.fail)["metrics"]
    assert metrics == {"loss": "$nan", "acc": "$inf"}
    writer.event("odd", value=object(), nan=math.nan, path=Path("a"), keys={1: 2})
    line = durable.decode_line((folder.path / "events.jsonl").read_bytes())
    assert line is not None
    assert line["keys"] == {"1": 2}
    assert math.isnan(line["nan"])


def test_points_and_events_are_readable_without_close(writer: RunWriter, folder: RunFolder) -> None:
    writer.log({"loss": 0.5}, 3)
    writer.event("warning", text="ä\n")
    assert read_series(folder.path, "loss")[1].tolist() == [0.5]
    line = durable.decode_line((folder.path / "events.jsonl").read_bytes())
    assert line is not None
    assert (line["kind"], line["text"]) == ("warning", "ä\n")
    assert datetime.fromisoformat(line["time"]).utcoffset() == timedelta(0)


def test_a_closed_writer_opens_again(writer: RunWriter, folder: RunFolder) -> None:
    use(writer)
    writer.event("after")
    writer.log({"loss": 0.25}, 3)
    writer.close()
    assert len((folder.path / "events.jsonl").read_text().splitlines()) == 2
    assert read_series(folder.path, "loss")[0].tolist() == [1, 2, 3]


def test_a_deleted_folder_is_reported(writer: RunWriter, folder: RunFolder) -> None:
    import shutil

    shutil.rmtree(folder.path)
    with pytest.raises(RecordError, match=r"status\.json: cannot be written: no such file"):
        writer.write_status("running")
    with pytest.raises(RecordError, match=r"series\.jsonl: cannot be written: no such file"):
        writer.log({"a": 1.0}, 1)


def test_a_resumed_run_keeps_its_start_and_counts_attempts(
    writer: RunWriter, folder: RunFolder
) -> None:
    use(writer)
    before = read_json(folder.path / "status.json")
    second = RunWriter(folder, attempt=1)
    assert second.num_points == 2
    second.write_status("running", step=1)
    second.log({"loss": 0.25}, 2)
    second.event("resumed")
    second.write_result({"status": "failed"})
    second.close()
    status = read_json(folder.path / "status.json")
    assert (status["started"], status["attempt"], status["reason"]) == (before["started"], 1, "")
    assert read_json(folder.path / "result.json") == {"attempt": 1, "status": "failed"}
    assert (folder.path / "events.jsonl").read_text().splitlines()[-1].count('"attempt":1') == 1
    assert read_series(folder.path, "loss")[1].tolist() == [1.0, 0.25]


def test_a_run_with_a_damaged_status_can_be_resumed(folder: RunFolder) -> None:
    (folder.path / "status.json").write_text("{")
    writer = RunWriter(folder, attempt=1)
    writer.write_status("running")
    assert read_json(folder.path / "status.json")["attempt"] == 1


def test_points_after_a_rollback_replace_earlier_ones(folder: RunFolder) -> None:
    writer = RunWriter(folder)
    writer.write_run({"attempts": [{"attempt": 0, "command": "x"}]})
    created = read_json(folder.path / "run.json")["created"]
    for step in (1, 2, 3):
        writer.log({"loss": float(step)}, step)
    assert writer.go_back(checkpoint="step-1", origin=0, step=1, points=1) == 1
    writer.log({"loss": 20.0}, 2)
    writer.close()
    steps, values = read_series(folder.path, "loss")
    assert (steps.tolist(), values.tolist()) == ([1, 2], [1.0, 20.0])
    run = read_json(folder.path / "run.json")
    assert run["created"] == created
    assert [one["attempt"] for one in run["attempts"]] == [0, 1]


@pytest.mark.parametrize("code", ERRORS)
def test_a_rollback_is_recorded_atomically(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Whichever operation fails: the list of attempts can be read, and nothing else has changed."""
    for allowed in range(100):
        writer = RunWriter(folder)
        writer.write_run({"attempts": [{"attempt": 0}]})
        faults = Faults(allowed=allowed, code=code)
        monkeypatch.setattr(durable.system, "operations", faults.operations)
        facts = {"checkpoint": "step-1", "origin": 0, "step": 1, "points": 1}
        with suppress(RecordError):
            writer.go_back(**facts)  # type: ignore[arg-type]
        monkeypatch.setattr(durable.system, "operations", durable.Operations())
        listed = read_json(folder.path / "run.json")["attempts"]
        assert [one["attempt"] for one in listed] in ([0], [0, 1])
        if not faults.failed:
            assert allowed > 3
            return
    raise AssertionError("the sweep does not end")
