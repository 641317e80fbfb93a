"""Tests of epochal.cli.pages.run_page."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from comparing import make_run
from epochal import durable
from epochal.cli.pages.run_page import describe_run
from epochal.records import read_run
from epochal.records.index import Index
from epochal.records.metrics.time_spent import TimeSpent
from epochal.records.query.query_runs import RunQuery, query_runs
from indexed import record_run
from past_runs import change
from small_project import Command, run_folders

if TYPE_CHECKING:
    from pathlib import Path


LOST = "           its process ended without a result: killed, or the machine went down"
RESUME = "  next     `epochal resume "
DEAD_PID = 2**22 + 1  # larger than any process id
HEADS = ("  status ", "  next ", "           ")


@pytest.fixture
def trained(shop: Path, epochal: Command) -> Path:
    words = ("model.dropout=0.2", "--variant", "long", "--desc", "to see")
    assert epochal("run", "config.yaml", *words).code == 0
    return run_folders(shop)[0]


def test_overview_shows_settings_and_where_they_were_set(trained: Path, epochal: Command) -> None:
    lines = [line.split() for line in epochal("show", "last").out.splitlines()]
    assert ["model.dropout", "0.2", "command", "line"] in lines
    assert ["optim.lr", "0.05", "config.yaml:6:7"] in lines
    assert ["optim.momentum", "0.9", "base.yaml:1:39", "(base)"] in lines
    assert not [line for line in lines if line[:1] == ["task.batch_size"]]
    assert [line for line in lines if line[0:1] == ["and"] and "defaults;" in line]


def test_overview_shows_mean_and_peak_of_system_figures(tmp_path: Path) -> None:
    record = make_run(tmp_path)
    samples = [
        {"time": 1, "system/memory": 5e9, "system/process/memory": 1e9, "system/gpu1/power": 300},
        {"time": 2, "system/memory": 7e9, "system/process/memory": 3e9, "system/gpu1/power": 500},
        {"time": 3, "system/cpu": 40, "system/process/cores": 2.5, "system/gpu1/use": 90},
    ]
    (record.path / "system.jsonl").write_bytes(b"".join(map(durable.encode_line, samples)))
    both = [
        "  system   machine: CPU 40% (peak 40%), memory 6.0 GB (peak 7.0 GB)",
        "           this run: 2.5 cores (peak 2.5 cores), memory 2.0 GB (peak 3.0 GB)",
    ]
    gpu = ["           GPU: 90% (peak 90%), power 400 W (peak 500 W)"]
    for device, expected in {"cpu": both, "cuda:1": both + gpu, "cuda": both}.items():
        change(record.path / "run.json", device={"device": device, "name": "x"})
        lines = list(describe_run(read_run(record.path), tmp_path))
        start = lines.index(f"  device   {device} x") + 1
        assert [one for one in lines[start:] if "(peak" in one] == expected, device


def test_overview_shows_the_best_value_a_curve_and_the_disk(
    trained: Path, epochal: Command
) -> None:
    out = epochal("show", "last").out
    assert "  best     val/acc " in out
    (line,) = [line for line in out.splitlines() if line.startswith("  val/acc ")]
    assert set(line.split()[-1]) <= set("▁▂▃▄▅▆▇█")
    assert len(line.split()[-1]) == 3
    assert "  checkpoints " in out
    assert "  in all " in out
    shown = json.loads(epochal("show", "last", "--json").out)
    assert shown["disk"]["config"] > 0


def test_everything_fits_the_terminal(
    trained: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for width in (24, 40, 60, 80, 200):
        for module in ("text.terminal", "cli.draw.text_table", "cli.pages.run_page"):
            monkeypatch.setattr(f"epochal.{module}.terminal_width", lambda width=width: width)
        lines = epochal("show", "last").out.splitlines()
        too_long = [line for line in lines if len(line) > width]
        assert all(len(line.split()[-1]) + 11 > width for line in too_long), "only paths are"
        (line, *_) = [line for line in lines if line.startswith("  val/acc ")]
        assert width < 40 or set("▁▂▃▄▅▆▇█") & set(line)


def test_related_runs_are_shown(trained: Path, epochal: Command) -> None:
    words = ("model.dropout=0.2", "--variant", "long", "--desc", "to see")
    assert epochal("run", "config.yaml", *words, "seed=7").code == 0
    assert "  seeds    2 runs differ only by seed (0, 7): best " in epochal("show", "last").out
    before = {*trained.parent.iterdir()}
    assert epochal("test", trained.name).code == 0
    (tested,) = (path.name for path in {*trained.parent.iterdir()} - before)
    assert f"  parent   test of {trained.name}" in epochal("show", tested).out
    out = epochal("show", trained.name).out
    assert "  child    " in out
    assert "(test, finished" in out


def test_overview_shows_edited_title_and_description(trained: Path, epochal: Command) -> None:
    assert epochal("show", "last").out.splitlines()[1] == "  to see"
    page = "# wider\n\nwhether it\noverfits\n\nIt does.\n"
    (trained / "README.md").write_text(page)
    head = epochal("show", "last").out.splitlines()[:4]
    assert head[0].startswith("wider, variant long  (")
    assert head[1:3] == ["  whether it", "  overfits"]
    assert head[3] == f"  ... `epochal describe {trained.name}` shows the rest"
    assert "wider" in epochal("diff", "last", "last").out


def test_best_error_is_the_smallest_without_a_monitor_in_the_config(tmp_path: Path) -> None:
    errors = {"val/error": {1: 0.5, 2: 0.2, 3: 0.9}}
    record = make_run(tmp_path / "a", {"monitor": None}, points=errors, monitor="val/error")
    assert "  best     val/error 0.2 at step 2" in list(describe_run(record, tmp_path))


def test_parent_is_shown_and_can_be_queried(tmp_path: Path) -> None:
    for kind, words in [
        ("retried", "retry of other"),
        ("trial", "trial of other"),
        ("fold", "fold of other"),
        ("weights", "initialised with the weights of other"),
        ("test", "test of other"),
        ("predict", "prediction of other"),
    ]:
        root = tmp_path / "runs"
        folder = record_run(root, parent={"run": "other", "kind": kind})
        record_run(root)
        assert f"  parent   {words}" in list(describe_run(read_run(folder), tmp_path)), kind
        with Index.open(root) as index:
            index.refresh()
            found = query_runs(
                index, RunQuery(where=f"parent_kind = {kind} and parent = other")
            ).rows
        assert [row["run"] for row in found] == [folder.name], kind


def test_attempts_show_their_cause(tmp_path: Path) -> None:
    attempts = [
        {"attempt": 0, "cause": "started"},
        {"attempt": 1, "cause": "retried", "checkpoint": "a-4", "step": 4, "started": "today"},
        {"attempt": 2, "cause": "rollback", "checkpoint": "a-2", "step": 2, "changed": ["x: 1"]},
        {"attempt": 3, "cause": "requeued"},
        {"attempt": 4, "checkpoint": "a-6", "step": 6},
    ]
    record = read_run(record_run(tmp_path, attempts=attempts))
    lines = [one for one in describe_run(record, tmp_path) if "attempt  " in one or "x: 1" in one]
    assert lines == [
        "  attempt  1: retried from a-4, step 4, today",
        "  attempt  2: rolled back to a-2, step 2",
        "           x: 1",
        "  attempt  3: requeued",
        "  attempt  4: from a-6, step 6",
    ]


def test_attempts_show_local_time(tmp_path: Path) -> None:
    moment = datetime(2026, 11, 15, 21, 48, tzinfo=UTC)
    attempts = [{"attempt": 0}, {"attempt": 1, "started": moment.isoformat()}]
    lines = describe_run(read_run(record_run(tmp_path, attempts=attempts)), tmp_path)
    assert f"  attempt  1: {moment.astimezone():%Y-%m-%d %H:%M}" in lines


def test_times_of_several_attempts_are_summed(tmp_path: Path) -> None:
    folder = record_run(tmp_path, attempts=[{"attempt": 0}, {"attempt": 1}])
    spent = TimeSpent({"steps": 60.0, "start-up/imports": 40.0}, redone_seconds=5.0, killed=1)
    change(folder / "result.json", **spent.to_fields())
    lines = list(describe_run(read_run(folder), tmp_path))
    assert "  time     1 min 40 s" in lines
    (table,) = [one for one in lines if one.startswith("  time") and "share" in one]
    assert " ".join(table.split()).endswith("start-up 40% 40.0 s mostly imports, 40.0 s")
    assert (
        "  over 2 attempts; at least, since one was killed before recording the last seconds; "
        "5.00 s of it for steps that do not count"
    ) in lines


def test_unfinished_runs_have_a_next_command(tmp_path: Path) -> None:
    for facts, expected in [
        ({"status": "running"}, ["  status   lost, epoch 1, step 3", LOST, RESUME]),
        ({"status": "interrupted"}, ["  status   interrupted, epoch 1, step 3", RESUME]),
        (
            {"status": "preempted", "given": ["hooks"]},
            ["  status   preempted, epoch 1, step 3", "  next     run its script with choices="],
        ),
        ({"status": "failed"}, ["  status   failed, epoch 1, step 3", "  next     `epochal show"]),
        ({"status": "stopped"}, ["  status   stopped, epoch 1, step 3"]),
        ({"status": "finished"}, ["  status   finished, epoch 1, step 3"]),
    ]:
        folder = tmp_path / str(facts["status"])
        make_run(folder, points={"val/acc": {3: 0.5}}, **facts)
        change(folder / "status.json", pid=DEAD_PID, host=socket.gethostname())
        record = read_run(folder)
        (folder / "checkpoints" / "t-3").mkdir(parents=True)
        shown = [line for line in describe_run(record, tmp_path) if line.startswith(HEADS)]
        assert len(shown) == len(expected), facts
        assert all(map(str.startswith, shown, expected)), facts


def test_lost_run_with_points_after_its_status_shows_no_outdated_epoch(tmp_path: Path) -> None:
    make_run(tmp_path / "a", points={"val/acc": {3: 0.5}}, status="running")
    change(tmp_path / "a" / "status.json", pid=DEAD_PID, host=socket.gethostname(), step=2)
    assert "  status   lost, step 3" in list(describe_run(read_run(tmp_path / "a"), tmp_path))


def test_lost_run_without_a_checkpoint_has_no_next_command(
    tmp_path: Path,
) -> None:
    make_run(tmp_path / "a", points={"val/acc": {3: 0.5}}, status="running")
    change(tmp_path / "a" / "status.json", pid=DEAD_PID, host=socket.gethostname())
    record = read_run(tmp_path / "a")
    assert record.summary.status == "lost"
    assert not [line for line in describe_run(record, tmp_path) if line.startswith("  next")]


def test_overview_of_a_test_counts_inherited_settings(tmp_path: Path) -> None:
    inherited = [{"value": 1, "source": "runs/a/config/expanded.yaml", "line": 4, "layer": "file"}]
    record = make_run(tmp_path / "a", {"model.width": inherited}, runner="test", started="?")
    lines = list(describe_run(record, tmp_path))
    assert "  status   finished" in lines
    assert "  and 1 from its parent run; --config prints them" in lines
    assert "model.width" not in "\n".join(lines)


def test_folds_are_shown_instead_of_metrics(tmp_path: Path) -> None:
    points = {"val/acc": {1: 0.5, 2: 0.7}}
    make_run(tmp_path / "a", points=points, metrics={"val/acc": 0.6}, best=0.6)
    make_run(tmp_path / "a" / "folds" / "1", points=points, metrics={"val/acc": 0.5})
    text = "\n".join(describe_run(read_run(tmp_path / "a"), tmp_path))
    assert "  fold  status    best  val/acc" in text
    assert "  metric " not in text
