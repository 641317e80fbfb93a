"""Tests of epochal.records.folder.reader."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tests.unit.records.folder.test_reader import make_run

import comparing
from epochal.records.find import read_run
from epochal.records.folder.folder import RunFolder
from epochal.records.folder.reader import (
    desc_of,
    describe_error,
    find_logs,
    find_monitor,
    seconds_of,
    step_of,
    tag_of,
)
from epochal.records.folder.writer import RunWriter
from past_runs import change, gone

if TYPE_CHECKING:
    from pathlib import Path


def test_tag_and_description_come_from_the_readme(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    assert (tag_of(read_run(path)), desc_of(read_run(path))) == ("mlp", "why")
    (path / "README.md").write_text("# wider\n\nbecause\n")
    assert (tag_of(read_run(path)), desc_of(read_run(path))) == ("wider", "because")
    (path / "README.md").unlink()
    assert (tag_of(read_run(path)), desc_of(read_run(path))) == ("mlp", "")


def test_the_step_of_a_lost_run_is_that_of_its_last_point(tmp_path: Path) -> None:
    with closing(RunWriter(RunFolder(tmp_path))) as writer:
        writer.write_status("running", step=20)
        writer.log({"train/loss": 0.5}, 40)
    assert step_of(read_run(tmp_path)) == 20  # it is at work, and will say so
    change(tmp_path / "status.json", **gone())
    assert step_of(read_run(tmp_path)) == 40
    change(tmp_path / "status.json", step=50)
    assert step_of(read_run(tmp_path)) == 50
    (tmp_path / "status.json").write_text("")
    assert step_of(read_run(tmp_path)) == 40


def test_logs_are_found_by_their_name_in_the_config(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "logs").mkdir()
    for name in ("run.log", "train.txt", "train.rank1.txt"):
        (tmp_path / "logs" / name).touch()
    assert find_logs(read_run(tmp_path)) == {0: tmp_path / "logs" / "run.log"}
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "expanded.yaml").write_text("record: {log_file: train.txt}")
    assert [path.name for path in find_logs(read_run(tmp_path)).values()] == [
        "train.txt",
        "train.rank1.txt",
    ]


HOUR = {"started": "2026-03-01T00:00:00+00:00", "ended": "2026-03-01T01:00:00+00:00"}


def write_seconds(path: Path, seconds: object) -> None:
    (path / "result.json").write_text(json.dumps({"attempt": 0, "seconds": seconds}))


def test_the_time_of_a_run_is_that_of_its_result_or_its_status(tmp_path: Path) -> None:
    path = make_run(tmp_path, status="running", seconds=3.0, **HOUR)
    assert seconds_of(read_run(path)) == 3.0
    write_seconds(path, 4.5)
    assert seconds_of(read_run(path)) == 4.5


def test_a_run_without_a_clock_took_the_time_from_start_to_end(tmp_path: Path) -> None:
    path = make_run(tmp_path, status="failed", **HOUR)
    for seconds in (0.0, None, "x"):
        write_seconds(path, seconds)
        assert seconds_of(read_run(path)) == 3600.0, seconds
    for started in ("yesterday", "2026-03-01T00:00:00"):  # damaged
        change(path / "status.json", started=started)
        assert seconds_of(read_run(path)) is None, started


def test_an_error_is_one_line() -> None:
    assert describe_error({"exception_type": "E", "message": "a\nb"}) == "E: a"
    assert describe_error({"exception_type": "E"}) == "E"
    assert describe_error({"message": "diverged: a\nb"}) == "diverged: a"
    assert describe_error({}) == ""


def test_the_monitor_is_read_in_all_its_forms(tmp_path: Path) -> None:
    forms: list[tuple[dict[str, Any], str]] = [
        ({"monitor": "+val/acc"}, "max"),
        ({"monitor": "-val/acc"}, "min"),
        ({"monitor.metric": "+val/acc", "monitor.mode": None}, "max"),
        ({"monitor.metric": "val/acc", "monitor.mode": "max"}, "max"),
        ({"monitor.metric": "val/acc", "monitor.mode": "min"}, "min"),
        ({"monitor": None}, "min"),
    ]
    for number, (config, mode) in enumerate(forms):
        record = comparing.make_run(tmp_path / str(number), config)
        assert find_monitor(record) == ("val/acc", mode), config
        (record.path / "config" / "provenance.json").unlink()
        assert find_monitor(read_run(record.path)) == ("val/acc", mode), config
    assert find_monitor(comparing.make_run(tmp_path / "none", monitor=None)) == ("", None)
