"""Tests of epochal.records.folder.reader."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from epochal.config.node import from_plain
from epochal.errors import Place, RecordError
from epochal.records import collect_provenance, explain
from epochal.records.find import find_runs, read_run
from epochal.records.folder.folder import RecordOptions, create_run_folder
from epochal.records.folder.reader import Point
from epochal.records.folder.writer import RunWriter
from epochal.records.layout.process import host_name

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.layout.run_status import Status

CONFIG = {"seed": 3, "optim": {"type": "AdamW", "lr": 0.1, "betas": [0.9, 0.99]}}


def make_run(
    base: Path, *, tag: str = "mlp", status: Status = "finished", points: Any = None, **fields: Any
) -> Path:
    folder = create_run_folder(RecordOptions(), project="digits", tag=tag, base=base)
    writer = RunWriter(folder)
    writer.write_readme(tag, "why")
    provenance = collect_provenance(from_plain(CONFIG, place=Place("a.json", 1, 2)))
    writer.write_config([], json.dumps(CONFIG), "json", provenance)
    writer.write_observed({})
    writer.write_run({"project": "digits", "tag": tag, "seed": 3})
    for name, values in (points or {"loss": [3.0, 1.0, 2.0]}).items():
        for step, value in enumerate(values):
            writer.log({name: value}, step)
    writer.event("saved", step=1)
    writer.write_result({"status": status, "metrics": {"loss": math.nan}, "best": 1.0})
    writer.write_status(status, step=3, epoch=1, **fields)
    writer.close()
    return folder.path


@pytest.fixture
def ended_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def summary_of(path: Path) -> Any:
    [summary] = find_runs(path)
    return summary


def test_runs_are_found_and_summarised(tmp_path: Path) -> None:
    path = make_run(tmp_path, reason="max_epochs")
    summary = summary_of(tmp_path)
    assert (summary.path, summary.id) == (path, path.name)
    assert (summary.project, summary.tag) == ("digits", "mlp")
    assert (summary.status, summary.reason) == ("finished", "max_epochs")
    assert (summary.step, summary.epoch) == (3, 1)
    assert summary.started <= summary.ended
    assert summary.result["best"] == 1.0
    assert math.isnan(summary.result["metrics"]["loss"])
    assert summary.damage == ()


def test_repr_of_a_record_is_short(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    shown = repr(read_run(path))
    assert path.name in shown
    assert "packages" not in shown
    assert "result=" not in shown


def test_only_an_active_run_of_this_machine_without_its_process_is_lost(
    tmp_path: Path, ended_pid: int
) -> None:
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ("starting", {"pid": ended_pid}, "lost"),
        ("running", {"pid": ended_pid}, "lost"),
        ("running", {}, "running"),
        ("running", {"pid": ended_pid, "host": f"not-{host_name()}"}, "running"),
        ("failed", {"pid": ended_pid}, "failed"),
    ]
    for written, fields, expected in cases:
        record = read_run(make_run(tmp_path, status=written, **fields))
        assert (record.summary.status, record.status["status"]) == (expected, expected), fields


def test_folder_without_files_is_listed_as_damaged(tmp_path: Path) -> None:
    create_run_folder(RecordOptions(), project="p", tag="empty", base=tmp_path)
    summary = summary_of(tmp_path)
    assert (summary.status, summary.tag) == ("damaged", "empty")
    assert summary.damage == ("run.json: missing", "status.json: missing")
    record = read_run("last", tmp_path)
    assert (record.run, record.expanded, record.provenance, record.readme) == ({}, {}, {}, "")
    assert record.metric_names() == []
    assert record.events == []


def test_damaged_files_are_reported(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    rubbish = [b"", b"{", b"[]", b"\xff\xfe", b"null", b"[" * 100_000, b'{"a": 1} x']
    for name in ("run.json", "status.json", "result.json"):
        whole = (path / name).read_bytes()
        for content in rubbish:
            (path / name).write_bytes(content)
            [line] = read_run(path).summary.damage
            assert line in (f"{name}: not valid JSON", f"{name}: not a mapping"), content[:9]
            assert line in read_run(path).damage
        (path / name).write_bytes(whole)
    (path / "run.json").unlink()
    (path / "run.json").mkdir()
    assert read_run(path).summary.damage == (
        "run.json: cannot be read: is a folder and not a regular file",
    )


def test_only_an_ended_run_needs_a_result(tmp_path: Path) -> None:
    for status, damage in (("finished", ("result.json: missing",)), ("running", ())):
        path = make_run(tmp_path, status=status)
        (path / "result.json").unlink()
        assert read_run(path).summary.damage == damage, status


def test_values_of_wrong_types_do_not_crash(tmp_path: Path) -> None:
    path = make_run(tmp_path, status="running")
    keys = ("status", "pid", "host", "process", "step", "started", "reason", "ended")
    whole = json.loads((path / "status.json").read_text())
    for value in (None, "x", [], {}, 1.5, -1, 10**30, True):
        for key in keys:
            (path / "status.json").write_text(json.dumps({**whole, key: value}))
            assert isinstance(summary_of(tmp_path).status, str), (key, value)
        (path / "run.json").write_text(json.dumps(dict.fromkeys(("tag", "project"), value)))
        assert isinstance(summary_of(tmp_path).tag, str), value


def test_record_holds_everything(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    record = read_run(path)
    assert record.run["seed"] == 3
    assert record.status["status"] == "finished"
    assert record.result["best"] == 1.0
    assert record.readme.startswith("# mlp\n\nwhy\n")
    assert record.expanded == CONFIG
    assert record.provenance["optim.lr"][0]["value"] == 0.1
    assert [event["kind"] for event in record.events] == ["saved"]
    assert record.damage == ()


def test_an_override_is_attributed_to_the_attempt_that_set_it(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    run = json.loads((path / "run.json").read_text())
    changes = [
        ["seed=5"],
        ["optim.lr=0.5", "seed=4"],
        ["optim.lr=0.5", "seed=5"],
        ["optim.lr=0.5", "seed=5"],  # that of a rollback
    ]
    attempts = [{"attempt": number, "overrides": one} for number, one in enumerate(changes, 1)]
    (path / "run.json").write_text(json.dumps({**run, "attempts": [{"attempt": 0}, *attempts]}))
    record = read_run(path)
    assert "set by command line of attempt 2: optim.lr=0.5" in explain(record, "optim.lr")
    assert "set by command line of attempt 3: seed=5" in explain(record, "seed")


def test_expanded_config_is_read_in_its_format(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    (path / "config" / "expanded.json").unlink()
    cases = [("yaml", b"seed: 3\n", 3), ("toml", b"seed = 3\n", 3), ("json", b'{"seed": 3}', 3)]
    cases += [("json", text, None) for text in (b"", b"\xff\0", b"[1]", b"{", b"x" * 2_000_000)]
    cases += [("py", b"raise SystemExit('executed')", None)]
    for format, content, seed in cases:
        file = path / "config" / f"expanded.{format}"
        file.write_bytes(content)
        assert read_run(path).expanded.get("seed") == seed, (format, content[:20])
        file.unlink()


def test_expanded_config_is_not_filled_from_the_readers_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_run(tmp_path)
    config = {"env": ["KEY"], "extra": {"key": "${env:KEY}", "list": ["${env:KEY}", 1]}}
    (path / "config" / "expanded.json").write_text(json.dumps(config))
    monkeypatch.setenv("KEY", "hunter2")
    assert read_run(path).expanded == config


def test_metrics_are_read_through_the_record(tmp_path: Path) -> None:
    record = read_run(make_run(tmp_path, points={"b": [3.0, 1.0, 2.0], "a": [0.0]}))
    assert record.metric_names() == ["a", "b"]
    steps, values = record.series("b")
    assert (steps.tolist(), values.tolist()) == ([0, 1, 2], [3.0, 1.0, 2.0])
    assert record.last("b") == Point(step=2, value=2.0)
    assert record.best("b", "min") == Point(1, 1.0)
    assert record.best("b", "max") == Point(0, 3.0)


def test_nan_is_best_only_if_all_values_are_nan(tmp_path: Path) -> None:
    points = {"a": [math.nan, -2.0, -1.0, -1.0, math.nan], "b": [math.nan, math.nan]}
    record = read_run(make_run(tmp_path, points=points))
    assert record.best("a", "max") == Point(2, -1.0)
    assert record.best("a", "min") == Point(1, -2.0)
    assert math.isnan(record.best("b", "max").value)
    assert math.isnan(record.last("a").value)


def test_unknown_metric_suggests_the_closest(tmp_path: Path) -> None:
    record = read_run(make_run(tmp_path))
    with pytest.raises(RecordError, match=r"los: no such metric\n  did you mean 'loss'\?"):
        record.last("los")


def test_metric_whose_points_are_damaged_is_reported(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    (path / "metrics.bin").write_bytes(bytes(36 * 3))
    record = read_run(path)
    assert record.damage == ("metrics.bin: 3 rows with a wrong checksum left out",)
    with pytest.raises(RecordError, match=r"no readable point of 'loss'\n  the rows are damaged"):
        record.last("loss")


def test_a_finished_run_with_metrics_needs_its_points(tmp_path: Path) -> None:
    for name in ("metrics.bin", "series.jsonl"):
        path = make_run(tmp_path)
        (path / name).unlink()
        assert read_run(path).summary.damage == (f"{name}: missing",)
        assert f"{name}: missing" in read_run(path).damage
        (path / "result.json").write_text('{"status": "finished", "metrics": {}}')
        assert read_run(path).summary.damage == ()


def test_damaged_events_are_counted(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    with (path / "events.jsonl").open("ab") as file:
        file.write(b'{"torn')
    record = read_run(path)
    assert len(record.events) == 1
    assert record.damage == ("events.jsonl: 1 damaged line left out",)


def test_folds_are_read_in_numeric_order(tmp_path: Path) -> None:
    whole = tmp_path / "20260101-000000-abcd"
    for folder in (whole, *(whole / "folds" / str(number) for number in (1, 2, 10))):
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
    (whole / "folds" / ".removing-3").mkdir()
    assert [fold.path.name for fold in read_run(whole).folds] == ["1", "2", "10"]
    assert read_run(whole / "folds" / "2").folds == []


def test_overrides_of_a_resumed_run_are_explained(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    assert explain(read_run(path), "seed") == "seed = 3\n  set in a.json:1:2"
    run = json.loads((path / "run.json").read_text())
    attempts = [{"attempt": 0}, {"attempt": 1, "overrides": ["optim.lr=0.5"]}]
    (path / "run.json").write_text(json.dumps({**run, "attempts": attempts}))
    assert explain(read_run(path), "optim.lr").splitlines() == [
        "optim.lr = 0.5",
        "  set by command line of attempt 1: optim.lr=0.5",
        "  over 0.1 from a.json:1:2",
    ]
    assert explain(read_run(path), "seed") == "seed = 3\n  set in a.json:1:2"
