"""Tests of trackers: which points they copy, on which rank, and how errors are reported."""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING

import pytest

from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.hook import Hook
from epochal.engine.tracking.mirror import Entry, Sink
from epochal.engine.tracking.tracker import (
    TrackedRun,
    Tracker,
    describe_trackers,
)
from epochal.records.folder.media import read_media
from epochal.testing import InjectedError, execute_run, tiny_run
from tracked import Series, carry_out_tracked, only, recorded

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.engine.run.engine_run import EngineRun
    from epochal.records.folder.media import Media


class Shown(Sink):
    """Keeps what it is given, by name and step."""

    def __init__(self, owner: Shows) -> None:
        self._owner = owner

    def write(self, entries: list[Entry]) -> None:
        self._owner.fail("logging")
        for entry in entries:
            for name, value in entry.values.items():
                self._owner.series.setdefault(name, {})[entry.step] = value

    def show(self, media: Media) -> None:
        self._owner.fail("showing")
        self._owner.shown.append((media.title, media.step, media.path.read_text()))

    def close(self, *, has_failed: bool) -> None:
        self._owner.may_end.wait()
        self._owner.endings.append(has_failed)
        self._owner.fail("end")


class Shows(Tracker):
    """Shows points in a dict."""

    def __init__(self, *, every: str | int = "4st", fails_at: str = "") -> None:
        self.every = Every.parse(every)
        self._fails_at = fails_at
        self.series: Series = {}
        self.shown: list[tuple[str, int, str]] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self.sources: list[TrackedRun] = []
        self.endings: list[bool] = []

    def open(self, source: TrackedRun) -> Sink:
        self.fail("import", ImportError("libwonder.so: no such file"))
        self.fail("start")
        self.sources.append(source)
        return Shown(self)

    def describe(self, run_dir: Path | None) -> str:
        return "a dict"

    def fail(self, when: str, error: Exception | None = None) -> None:
        if self._fails_at == when:
            raise error or RuntimeError("out of wonder\nand of more")


class Absent(Shows):
    """Needs a package that is not installed."""

    package = "a_missing_package"


def test_trackers_copy_recorded_values_one_per_period(tmp_path: Path) -> None:
    tracker = Shows()
    folder, result = carry_out_tracked(tmp_path, tracker)
    assert result.ok, result.message
    record = recorded(folder)
    assert set(tracker.series) == set(record)
    assert tracker.series["val/acc"] == record["val/acc"]
    assert tracker.series["train/epoch/loss"] == record["train/epoch/loss"]
    rare = only(record, "train/loss", "train/acc", "lr", steps={4, 8, 12})
    assert only(tracker.series, "train/loss", "train/acc", "lr") == rare


def test_a_period_of_zero_skips_training_points(tmp_path: Path) -> None:
    tracker = Shows(every=0)
    folder, _ = carry_out_tracked(tmp_path, tracker)
    assert tracker.series["val/acc"] == recorded(folder)["val/acc"]
    assert not {"lr", "train/loss"} & set(tracker.series)


def test_values_logged_by_hooks_are_copied(tmp_path: Path) -> None:
    class Logs(Hook):
        def step_end(self, run: EngineRun) -> None:
            run.log({"own": run.step / 2})

    tracker = Shows(every=0)
    carry_out_tracked(tmp_path, tracker, Logs())
    assert tracker.series["own"] == {step: step / 2 for step in range(1, 13)}


class Notes(Hook):
    """Shows something from the start to the end of a run."""

    def run_start(self, run: EngineRun) -> None:
        run.save_media("start", "it starts")

    def epoch_end(self, run: EngineRun, split: str, metrics: dict[str, float]) -> None:
        if split == "train":
            run.save_media("note", f"epoch {run.epoch_number}")

    def run_end(self, run: EngineRun) -> None:
        run.save_media("end", "it ends")


def test_media_are_copied(tmp_path: Path) -> None:
    tracker = Shows(every=0)
    folder, result = carry_out_tracked(tmp_path, tracker, Notes())
    assert result.ok, result.message
    kept = [(one.title, one.step, one.path.read_text()) for one in read_media(folder)]
    assert ("note/text", 6, "epoch 1") in kept
    assert sorted(tracker.shown) == sorted(kept)


def test_media_that_cannot_be_shown_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = Shows(fails_at="showing")
    folder, result = carry_out_tracked(tmp_path, tracker, Notes())
    assert result.ok, result.message
    messages = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    what = "start/text: RuntimeError: out of wonder"
    assert messages == [f"Shows: cannot show {what}; the record still has it"]
    assert tracker.series["val/acc"] == recorded(folder)["val/acc"]
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    (left_out,) = [one for one in events if one["kind"] == "media_not_shown"]
    assert (left_out["tracker"], left_out["message"]) == ("Shows", what)


def test_a_run_waits_only_some_seconds_for_a_tracker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epochal.engine.tracking.mirror.QUIET_SECONDS", 0.0)
    monkeypatch.setattr("epochal.engine.tracking.tracker.CLOSE_SECONDS", 0.1)
    caplog.set_level(logging.INFO, "epochal.engine.tracking.tracker")
    tracker = Shows()
    tracker.may_end.clear()
    _, result = carry_out_tracked(tmp_path, tracker)
    tracker.may_end.set()
    assert result.ok, result.message
    assert [one.getMessage() for one in caplog.records if one.name.endswith("tracker")] == [
        "Shows: still writing; the run waits up to 0 s",
        "Shows: did not finish in 0 s; the run continues, and its record is complete",
    ]


def test_a_tracker_knows_tag_description_project_and_config(tmp_path: Path) -> None:
    tracker = Shows()
    folder, _ = carry_out_tracked(tmp_path, tracker)
    (source,) = tracker.sources
    assert source == TrackedRun(folder, "tiny", "to see", "tests")
    assert source.read_config() == {}
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config" / "expanded.yaml").write_text("optim: {lr: 0.1}\n")
    assert source.read_config() == {"optim": {"lr": 0.1}}


def test_a_tracker_gets_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "open-sesame")
    (tmp_path / "config").mkdir()
    text = "env: [SHOP_KEY]\nextra: {key: '${env:SHOP_KEY}', password: hunter2, width: 3}\n"
    (tmp_path / "config" / "expanded.yaml").write_text(text)
    config = TrackedRun(tmp_path, "", "", "").read_config()
    assert config["extra"]["width"] == 3
    assert "open-sesame" not in str(config)
    assert "hunter2" not in str(config)


def test_reported_errors_contain_no_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Remote(Shows):
        def open(self, source: TrackedRun) -> Sink:
            raise ConnectionError("https://me:hunter2@tracker.example/api: refused")

    folder, _ = carry_out_tracked(tmp_path, Remote())
    assert "refused" in caplog.text
    assert "hunter2" not in caplog.text + (folder / "events.jsonl").read_text()


def test_without_a_record_nothing_is_copied() -> None:
    tracker = Shows()
    execute_run(tiny_run(tracker))
    assert tracker.series == {}
    assert tracker.sources == []


@pytest.mark.parametrize(
    ("when", "what"),
    [
        ("import", "ImportError: libwonder.so: no such file"),
        ("start", "RuntimeError: out of wonder"),
        ("logging", "RuntimeError: out of wonder"),
        ("end", "RuntimeError: out of wonder"),
    ],
)
def test_an_error_of_a_tracker_is_reported_once_and_does_not_stop_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, when: str, what: str
) -> None:
    folder, result = carry_out_tracked(tmp_path, Shows(fails_at=when))
    assert result.ok, result.message
    messages = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert messages == [f"Shows: {what}; the run continues, and its record is complete"]
    assert set(recorded(folder)["lr"]) == {2, 4, 6, 8, 10, 12}
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    (failed,) = [one for one in events if one["kind"] == "tracker_failed"]
    assert (failed["tracker"], failed["message"]) == ("Shows", what)


def test_an_error_is_reported_during_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = Shows(fails_at="start")

    class Patient(Hook):
        priority = 300

        def step_end(self, run: EngineRun) -> None:
            if run.step == 6 and tracker._mirror is not None:
                tracker._mirror.close(10)  # as time would
            if run.step == 9:
                assert "out of wonder" in caplog.text

    _, result = carry_out_tracked(tmp_path, tracker, Patient())
    assert result.ok, result.message
    assert caplog.text.count("out of wonder") == 1


def test_a_missing_package_is_reported_with_the_command_to_install_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, result = carry_out_tracked(tmp_path, Absent())
    assert result.ok
    messages = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert messages == [
        "Absent: the package a_missing_package is not installed; the run continues, "
        "and its record is complete",
        "  `pip install 'epochal[a_missing_package]'`, or remove the hook",
    ]


def test_the_sink_knows_whether_the_run_failed(tmp_path: Path) -> None:
    class Broken(Hook):
        def step_end(self, run: EngineRun) -> None:
            if run.step == 5:
                raise InjectedError

    tracker = Shows()
    _, result = carry_out_tracked(tmp_path, tracker, Broken())
    assert result.exception_type == "InjectedError"
    assert tracker.endings == [True]


def test_trackers_are_described_with_their_periods() -> None:
    run = tiny_run(Shows(), Absent(every=0))
    assert describe_trackers(run) == (
        "Shows every 4st: a dict; Absent a dict (a_missing_package is not installed)"
    )
    assert describe_trackers(tiny_run()) == ""
