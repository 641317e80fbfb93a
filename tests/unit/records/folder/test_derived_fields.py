"""Tests of epochal.records.folder.derived_fields."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.unit.records.folder.test_record import make_run

from epochal.records.folder.derived_fields import (
    desc_of,
    describe_error,
    find_logs,
    seconds_of,
    step_of,
    tag_of,
)
from epochal.records.folder.folder import RunFolder
from epochal.records.folder.record import read_run
from epochal.records.folder.writer import RunWriter
from past_runs import change, gone

if TYPE_CHECKING:
    from pathlib import Path


def test_tag_and_purpose_are_those_of_the_page_that_people_edit(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    assert (tag_of(read_run(path)), desc_of(read_run(path))) == ("mlp", "why")
    (path / "README.md").write_text("# wider\n\nbecause\n")
    assert (tag_of(read_run(path)), desc_of(read_run(path))) == ("wider", "because")
    (path / "README.md").unlink()
    assert (tag_of(read_run(path)), desc_of(read_run(path))) == ("mlp", "")


def test_step_of_a_lost_run_is_that_of_its_last_point(tmp_path: Path) -> None:
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


def test_logs_are_found_by_the_name_that_the_config_gave_them(tmp_path: Path) -> None:
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


def test_a_run_took_the_seconds_of_its_result_and_not_those_until_its_process_ended(
    tmp_path: Path,
) -> None:
    path = make_run(tmp_path, seconds=3.0, **HOUR)
    write_seconds(path, 4.5)
    assert seconds_of(read_run(path)) == 4.5


def test_a_run_without_an_end_took_the_seconds_of_its_last_beat(tmp_path: Path) -> None:
    path = make_run(tmp_path, status="running", seconds=3.0, **HOUR)
    assert seconds_of(read_run(path)) == 3.0


@pytest.mark.parametrize("seconds", [0.0, None, "x"])
def test_a_run_whose_clock_never_started_took_the_time_from_start_to_end(
    tmp_path: Path, seconds: object
) -> None:
    path = make_run(tmp_path, status="failed", **HOUR)
    write_seconds(path, seconds)
    assert seconds_of(read_run(path)) == 3600.0


@pytest.mark.parametrize("started", ["yesterday", "2026-03-01T00:00:00"])
def test_nobody_knows_how_long_a_damaged_run_took(tmp_path: Path, started: str) -> None:
    assert seconds_of(read_run(make_run(tmp_path, **(HOUR | {"started": started})))) is None


def test_an_error_is_one_line() -> None:
    assert describe_error({"exception_type": "E", "message": "a\nb"}) == "E: a"
    assert describe_error({"exception_type": "E"}) == "E"
    assert describe_error({}) == ""
