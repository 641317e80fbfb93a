"""Tests of epochal.records.folder.record."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from epochal.config.node import from_plain
from epochal.errors import Place, RecordError
from epochal.records import collect_provenance, explain
from epochal.records.find import find_runs, read_run
from epochal.records.folder.folder import RecordOptions, create_run_folder
from epochal.records.folder.record import Point, RunRecord
from epochal.records.folder.writer import RunWriter, Status
from epochal.records.layout.process import host_name

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


@pytest.mark.parametrize("level", ["", "runs", "runs/digits", "runs/digits/mlp"])
def test_any_level_may_be_searched(tmp_path: Path, level: str) -> None:
    path = make_run(tmp_path)
    assert [run.path for run in find_runs(tmp_path / level)] == [path]
    assert [run.path for run in find_runs(path)] == [path]


def test_runs_come_in_the_order_they_started(tmp_path: Path) -> None:
    times = ["2026-03-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00", "2026-02-01T00:00:00+00:00"]
    for month in times:
        make_run(tmp_path, tag="t", started=month)
    assert [run.started for run in find_runs(tmp_path)] == sorted(times)


def test_missing_and_empty_folders_hold_no_runs(tmp_path: Path) -> None:
    assert find_runs(tmp_path / "none") == []
    assert find_runs(tmp_path) == []
    (tmp_path / "file").write_text("x")
    assert find_runs(tmp_path / "file") == []


def test_folders_inside_a_run_are_not_runs(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    make_run(tmp_path).rename(path / "media" / "20260101-000000-0000")
    assert len(find_runs(tmp_path)) == 1


def test_exact_folder_is_found_by_its_content(tmp_path: Path) -> None:
    options = RecordOptions(log_dir=Path("mine"), exact=True)
    folder = create_run_folder(options, project="p", tag="t", base=tmp_path)
    RunWriter(folder).write_run({"tag": "exact"})
    assert summary_of(tmp_path).tag == "exact"
    assert read_run("mine", tmp_path).path == tmp_path / "mine"


def test_linked_folders_are_followed_once(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    (tmp_path / "runs" / "loop").symlink_to(tmp_path / "runs")
    (tmp_path / "other").symlink_to(path.parent)
    assert len(find_runs(tmp_path)) == 1
    assert len(find_runs(tmp_path / "other")) == 1


def test_a_record_is_shown_without_all_that_it_holds(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    shown = repr(read_run(path))
    assert path.name in shown
    assert "packages" not in shown
    assert "result=" not in shown


@pytest.mark.parametrize("status", ["starting", "running"])
def test_run_whose_process_is_gone_is_lost(tmp_path: Path, status: Any, ended_pid: int) -> None:
    make_run(tmp_path, status=status, pid=ended_pid)
    assert summary_of(tmp_path).status == "lost"
    assert read_run("last", tmp_path).status["status"] == "lost"


def test_living_run_is_running(tmp_path: Path) -> None:
    make_run(tmp_path, status="running")
    assert summary_of(tmp_path).status == "running"


def test_run_on_another_machine_is_believed(tmp_path: Path, ended_pid: int) -> None:
    make_run(tmp_path, status="running", pid=ended_pid, host="not-" + host_name())
    assert summary_of(tmp_path).status == "running"


def test_ended_run_is_never_lost(tmp_path: Path, ended_pid: int) -> None:
    make_run(tmp_path, status="failed", pid=ended_pid)
    assert summary_of(tmp_path).status == "failed"


def test_folder_without_files_is_listed_as_damaged(tmp_path: Path) -> None:
    create_run_folder(RecordOptions(), project="p", tag="empty", base=tmp_path)
    summary = summary_of(tmp_path)
    assert (summary.status, summary.tag) == ("damaged", "empty")
    assert summary.damage == ("run.json: missing", "status.json: missing")
    record = read_run("last", tmp_path)
    assert (record.run, record.expanded, record.provenance, record.readme) == ({}, {}, {}, "")
    assert record.metric_names() == []
    assert record.events == []


RUBBISH = [b"", b"{", b"[]", b"\xff\xfe", b"null", b"[" * 100_000, b'{"a": 1} x']


@pytest.mark.parametrize("content", RUBBISH, ids=range(len(RUBBISH)))
@pytest.mark.parametrize("name", ["run.json", "status.json", "result.json"])
def test_damaged_files_are_reported_and_never_crash(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = make_run(tmp_path)
    (path / name).write_bytes(content)
    [line] = summary_of(tmp_path).damage
    assert line in (f"{name}: not valid JSON", f"{name}: not a mapping")
    assert line in read_run("last", tmp_path).damage


def test_file_that_is_a_folder_is_reported(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    (path / "run.json").unlink()
    (path / "run.json").mkdir()
    assert summary_of(tmp_path).damage == ("run.json: cannot be read: is a directory",)


@pytest.mark.parametrize("value", [None, "x", [], {}, 1.5, -1, 10**30, True])
def test_values_of_wrong_types_do_not_crash(tmp_path: Path, value: object) -> None:
    path = make_run(tmp_path, status="running")
    keys = ("status", "pid", "host", "process", "step", "started", "reason", "ended")
    whole = json.loads((path / "status.json").read_text())
    for key in keys:
        (path / "status.json").write_text(json.dumps({**whole, key: value}))
        assert isinstance(summary_of(tmp_path).status, str)
    (path / "run.json").write_text(json.dumps(dict.fromkeys(("tag", "project"), value)))
    assert isinstance(summary_of(tmp_path).tag, str)


def test_finished_run_without_result_is_reported(tmp_path: Path) -> None:
    (make_run(tmp_path) / "result.json").unlink()
    assert summary_of(tmp_path).damage == ("result.json: missing",)


def test_running_run_needs_no_result(tmp_path: Path) -> None:
    (make_run(tmp_path, status="running") / "result.json").unlink()
    assert summary_of(tmp_path).damage == ()


def test_listing_needs_no_numpy(tmp_path: Path) -> None:
    make_run(tmp_path)
    code = (
        "import sys, pathlib; from epochal.records import find_runs\n"
        f"assert find_runs(pathlib.Path({str(tmp_path)!r}))\n"
        "sys.exit(bool({'numpy', 'torch', 'ruamel'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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


def test_what_was_changed_when_a_run_went_on_is_explained(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    run = json.loads((path / "run.json").read_text())
    attempts = [{"attempt": 0}, {"attempt": 1, "overrides": ["optim.lr=0.5"]}]
    (path / "run.json").write_text(json.dumps({**run, "attempts": attempts}))
    assert explain(read_run(path), "optim.lr").splitlines() == [
        "optim.lr = 0.5",
        "  set by command line of attempt 1: optim.lr=0.5",
        "  over 0.1 from a.json:1:2",
    ]
    assert explain(read_run(path), "seed") == "seed = 3\n  set in a.json:1:2"


def test_a_change_belongs_to_the_attempt_that_made_it(tmp_path: Path) -> None:
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


def test_record_explains_its_values(tmp_path: Path) -> None:
    record = read_run(make_run(tmp_path))
    assert explain(record, "seed") == "seed = 3\n  set in a.json:1:2"


@pytest.mark.parametrize(
    ("format", "text"), [("yaml", "seed: 3\n"), ("toml", "seed = 3\n"), ("json", '{"seed": 3}')]
)
def test_expanded_config_is_read_in_its_own_format(tmp_path: Path, format: str, text: str) -> None:
    path = make_run(tmp_path)
    (path / "config" / "expanded.json").unlink()
    (path / "config" / f"expanded.{format}").write_text(text)
    assert read_run(path).expanded == {"seed": 3}


def test_expanded_config_is_not_filled_from_the_readers_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_run(tmp_path)
    config = {"env": ["KEY"], "extra": {"key": "${env:KEY}", "list": ["${env:KEY}", 1]}}
    (path / "config" / "expanded.json").write_text(json.dumps(config))
    monkeypatch.setenv("KEY", "hunter2")
    assert read_run(path).expanded == config


@pytest.mark.parametrize("content", [b"", b"\xff\0", b"[1]", b"{", b"x" * 2_000_000])
def test_damaged_expanded_config_is_empty(tmp_path: Path, content: bytes) -> None:
    path = make_run(tmp_path)
    (path / "config" / "expanded.json").write_bytes(content)
    assert read_run(path).expanded == {}


def test_code_planted_as_expanded_config_is_not_run(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    (path / "config" / "expanded.json").unlink()
    (path / "config" / "expanded.py").write_text("raise SystemExit('executed')")
    assert read_run(path).expanded == {}


def test_metrics_are_read_through_the_record(tmp_path: Path) -> None:
    record = read_run(make_run(tmp_path, points={"b": [3.0, 1.0, 2.0], "a": [0.0]}))
    assert record.metric_names() == ["a", "b"]
    steps, values = record.series("b")
    assert (steps.tolist(), values.tolist()) == ([0, 1, 2], [3.0, 1.0, 2.0])
    assert record.last("b") == Point(step=2, value=2.0)
    assert record.best("b", "min") == Point(1, 1.0)
    assert record.best("b", "max") == Point(0, 3.0)


def test_nan_is_never_best_unless_it_is_alone(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name", ["metrics.bin", "series.jsonl"])
def test_a_finished_run_without_its_points_is_damaged(tmp_path: Path, name: str) -> None:
    path = make_run(tmp_path)
    (path / name).unlink()
    assert summary_of(tmp_path).damage == (f"{name}: missing",)
    assert f"{name}: missing" in read_run("last", tmp_path).damage


def test_a_run_that_measured_nothing_needs_no_points(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    (path / "result.json").write_text('{"status": "finished", "metrics": {}}')
    (path / "metrics.bin").unlink()
    assert summary_of(tmp_path).damage == ()


def test_damaged_events_are_counted(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    with (path / "events.jsonl").open("ab") as file:
        file.write(b'{"torn')
    record = read_run(path)
    assert len(record.events) == 1
    assert record.damage == ("events.jsonl: 1 damaged line left out",)


def rename(path: Path, name: str) -> Path:
    return path.rename(path.with_name(name))


@pytest.fixture
def three_runs(tmp_path: Path) -> list[Path]:
    names = ["20260101-000000-aaaa", "20260101-000001-aabb", "20260202-000000-ccbb"]
    return [rename(make_run(tmp_path), name) for name in names]


def test_runs_are_named_by_id_or_a_part_of_it(tmp_path: Path, three_runs: list[Path]) -> None:
    for name, index in [
        ("20260101-000000-aaaa", 0),
        ("20260202", 2),
        ("aaaa", 0),
        ("ccbb", 2),
        ("0001-a", 1),
        ("last", 2),
    ]:
        assert read_run(name, tmp_path).path == three_runs[index]


def test_runs_are_named_by_path(
    tmp_path: Path, three_runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_run(three_runs[1], tmp_path / "elsewhere").path == three_runs[1]
    assert read_run(str(three_runs[1])).path == three_runs[1]
    monkeypatch.chdir(three_runs[1])
    assert read_run(".").summary.tag == "mlp"


def test_name_that_fits_several_runs_lists_them(tmp_path: Path, three_runs: list[Path]) -> None:
    with pytest.raises(RecordError) as caught:
        read_run("bb", tmp_path)
    assert str(caught.value).splitlines() == [
        f"bb: fits 2 runs in {tmp_path}",
        f"  {three_runs[1]}",
        f"  {three_runs[2]}",
    ]


def test_long_lists_of_candidates_are_cut(tmp_path: Path) -> None:
    for _ in range(10):
        make_run(tmp_path)
    with pytest.raises(RecordError, match="fits 10 runs") as caught:
        read_run("2", tmp_path)
    assert str(caught.value).splitlines()[-1] == "  and 2 older ones"


def test_full_id_wins_over_longer_ones(tmp_path: Path) -> None:
    for name in ("alpha", "alpha-2"):
        options = RecordOptions(log_dir=Path(name), exact=True)
        folder = create_run_folder(options, project="p", tag="t", base=tmp_path)
        RunWriter(folder).write_run({})
    assert read_run("alpha", tmp_path).path == tmp_path / "alpha"


def test_unknown_run_suggests_the_closest(tmp_path: Path, three_runs: list[Path]) -> None:
    with pytest.raises(
        RecordError, match=r"no such run in .*\n  did you mean '20260202-000000-ccbb'"
    ):
        read_run("20260202-000000-ccbx", tmp_path)


@pytest.mark.parametrize("name", ["", "zzz", "a\0b", "no/such/path"])
def test_nonsense_is_no_run(tmp_path: Path, three_runs: list[Path], name: str) -> None:
    with pytest.raises(RecordError):
        read_run(name, tmp_path)


def test_empty_root_says_how_to_start(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"no runs here\n  start one with `epochal run CONFIG`"):
        read_run("last", tmp_path)


def test_unreadable_folders_are_passed_over(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    make_run(tmp_path)
    (tmp_path / "runs" / "secret").mkdir(mode=0)
    assert len(find_runs(tmp_path)) == 1


def test_hundreds_of_runs_are_listed(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    for number in range(200):
        shutil.copytree(path, path.with_name(f"20260101-000000-{number:04x}"))
    runs = find_runs(tmp_path)
    assert len(runs) == 201
    assert isinstance(read_run(f"{199:04x}", tmp_path), RunRecord)


def test_folds_are_the_runs_inside_of_a_run_in_their_order(tmp_path: Path) -> None:
    whole = tmp_path / "20260101-000000-abcd"
    for folder in (whole, *(whole / "folds" / str(number) for number in (1, 2, 10))):
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
    (whole / "folds" / ".removing-3").mkdir()
    assert [fold.path.name for fold in read_run(whole).folds] == ["1", "2", "10"]
    assert read_run(whole / "folds" / "2").folds == []
