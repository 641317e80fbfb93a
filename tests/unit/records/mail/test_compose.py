"""The texts of mails, from given content and from the record of a run."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from epochal import durable
from epochal.records import read_run
from epochal.records.folder.checkpoint_manifests import CheckpointManifest, encode_manifest
from epochal.records.mail.compose import MailContent, compose, describe_run, last_lines, mail_kind
from past_runs import RUN, gone, leave_run

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.mail.mailbox import Mailbox

CONTENT = MailContent(
    kind="finished",
    tag="digits",
    run="shop/digits/20261115-031200-a3f9",
    folder="/data/runs/shop/digits/20261115-031200-a3f9",
    seconds=7500.0,
    step=1200,
    epoch=3,
    monitor="val/acc",
    best=0.97123,
    metrics={"val/acc": 0.97, "train/epoch/loss": 0.1},
    sender={"variant": None, "desc": "does a wider one help?", "host": "box7"},
)


def test_a_subject_has_outcome_run_duration_and_best_value() -> None:
    assert compose(CONTENT).subject == "finished: digits a3f9, 2 h 5 min, best val/acc 0.9712"


def test_the_subject_of_a_test_has_its_metrics() -> None:
    metrics = {"test/acc": 0.97123, "test/loss": 0.1, "train/epoch/loss": 0.2}
    content = replace(CONTENT, best=None, metrics=metrics)
    assert (
        compose(content).subject
        == "finished: digits a3f9, 2 h 5 min, test/acc 0.9712, test/loss 0.1"
    )
    assert (
        "  results  test/acc 0.9712  test/loss 0.1  train/epoch/loss 0.2\n" in compose(content).text
    )
    metrics = {f"test/{name}": 1.0 for name in "abcd"}
    assert compose(replace(content, metrics=metrics)).subject.endswith(
        "test/a 1, test/b 1, test/c 1"
    )


def test_every_kind_has_a_subject() -> None:
    table = {
        ("failed", "ValueError: torn"): "failed: digits a3f9, 3 min 20 s, ValueError: torn",
        ("lost", "its process died"): "lost: digits a3f9, 3 min 20 s, its process died",
        ("out_of_disk", ""): "out of disk: digits a3f9, 3 min 20 s",
        ("gave_up", "it failed"): "given up: digits a3f9, 3 min 20 s, it failed",
        ("stalled", "nothing for 9 s"): "stalled: digits a3f9, 3 min 20 s, nothing for 9 s",
        ("diverged", ""): "diverged: digits a3f9, 3 min 20 s",
        ("sweep_done", "50 trials"): "sweep done: digits a3f9, 3 min 20 s, 50 trials",
    }
    short = replace(CONTENT, seconds=200.0, best=None)
    found = {end: compose(replace(short, kind=end[0], why=end[1])).subject for end in table}
    assert found == table


def test_a_subject_names_the_variant() -> None:
    content = replace(CONTENT, sender={"variant": "wide"})
    assert compose(content).subject.startswith("finished: digits/wide a3f9,")


def test_a_subject_is_one_line_and_not_too_long() -> None:
    content = replace(CONTENT, kind="failed", tag="di\ngits", why="x" * 500 + "\nmore")
    subject = compose(content).subject
    assert "\n" not in subject
    assert len(subject) == 160
    assert subject.endswith("…")


def test_the_text_has_results_reason_traceback_and_log() -> None:
    content = replace(
        CONTENT,
        kind="failed",
        why="ValueError: torn\nrow 3",
        traceback="Traceback ...\nValueError: torn",
        log="12:00 all is well",
    )
    assert compose(content).text == (
        "digits a3f9: failed\n"
        "  does a wider one help?\n"
        "\n"
        "  length   epoch 3, step 1200, 2 h 5 min\n"
        "  best     val/acc 0.9712\n"
        "  results  val/acc 0.97  train/epoch/loss 0.1\n"
        "  why      ValueError: torn\n"
        "           row 3\n"
        "  machine  box7\n"
        "  folder   /data/runs/shop/digits/20261115-031200-a3f9\n"
        "  next     epochal show 20261115-031200-a3f9\n"
        "\ntraceback:\n\nTraceback ...\nValueError: torn\n"
        "\nlast log lines:\n\n12:00 all is well\n"
    )


def test_resuming_is_suggested_only_if_it_can_work(tmp_path: Path) -> None:
    content = replace(CONTENT, kind="failed", folder=str(tmp_path))
    assert "resume" not in compose(content).text
    checkpoint = tmp_path / "checkpoints" / "step-7"
    checkpoint.mkdir(parents=True)
    manifest = CheckpointManifest(path=checkpoint, files={}, step=7)
    (checkpoint / "manifest.json").write_bytes(encode_manifest(manifest))
    assert f"           epochal resume {tmp_path}\n" in compose(content).text
    assert "resume" not in compose(replace(content, kind="finished")).text
    (tmp_path / "run.json").write_text('{"given": ["model"]}')
    assert "run the script again, with choices={'resume': " in compose(content).text


def test_mails_contain_no_secrets() -> None:
    content = replace(CONTENT, why="GET https://ann:hunter22@example.org", log="password=hunter22")
    mail = compose(content)
    assert "hunter22" not in f"{mail}"
    assert "example.org" in mail.subject


def test_mails_about_the_end_of_one_attempt_share_an_id() -> None:
    lost, later = (
        compose(replace(CONTENT, kind=kind, event="end")) for kind in ("lost", "finished")
    )
    again = compose(replace(CONTENT, attempt=1, event="end"))
    assert lost.id == later.id != again.id
    nowhere = replace(CONTENT, run="", folder="")
    assert "next" not in compose(nowhere).text
    assert compose(nowhere).subject.startswith("finished: digits, 2 h")


def test_status_and_reason_decide_the_kind_of_mail() -> None:
    table = {
        ("finished", "max_epochs"): "finished",
        ("stopped", "early_stop"): "finished",
        ("diverged", "diverged"): "diverged",
        ("failed", "exception"): "failed",
        ("failed", "disk_full"): "out_of_disk",
        ("lost", ""): "lost",
        ("interrupted", "user_interrupt"): None,
        ("preempted", "preempted"): None,
    }
    assert {end: mail_kind(*end) for end in table} == table


def test_a_lost_run_shows_its_last_sign_of_life(box: Mailbox) -> None:
    folder = leave_run(box, gone(), started="2026-11-15T03:00:00.000+00:00", seconds=7500)
    moment = datetime(2026, 11, 15, 5, 5, tzinfo=UTC).timestamp()
    for path in folder.iterdir():
        os.utime(path, (moment, moment))
    content = describe_run(read_run(folder), "lost", run=RUN, monitor="val/acc", mode="max")
    assert content.seconds == 7500
    assert content.best == 0.9  # of its points, since it left no result
    local = datetime.fromtimestamp(moment).astimezone()
    assert content.why == f"its process died, last sign of life {local:%b %d, %H:%M}"
    assert (content.step, content.epoch, content.tag) == (3, 1, "digits")
    assert content.log == "one\ntwo"
    assert content.sender["desc"] == "why not"


def test_a_failed_run_shows_its_error_and_the_log_before_it(box: Mailbox) -> None:
    folder = leave_run(box, gone(), status="failed", reason="exception")
    trace = "Traceback (most recent call last):\n  File x\nValueError: torn"
    error = {"exception_type": "ValueError", "message": "torn\nrow", "traceback": f"{trace}\n"}
    durable.write_json(folder / "result.json", {"attempt": 0, "seconds": 4.0, **error})
    (folder / "logs" / "run.log").write_text(f"one\ntwo\n12:00 ERROR conduct: {trace}\n")
    content = describe_run(read_run(folder), "failed", run=RUN, monitor="val/acc", mode="max")
    assert content.why == "ValueError: torn"
    assert content.traceback.strip() == trace
    assert content.log == "one\ntwo"
    assert (content.seconds, content.best) == (4.0, None)


def test_a_monitor_without_points_has_no_best_value(box: Mailbox) -> None:
    folder = leave_run(box, gone())
    assert (
        describe_run(read_run(folder), "lost", run=RUN, monitor="val/loss", mode="min").best is None
    )
    (folder / "metrics.bin").unlink()
    assert (
        describe_run(read_run(folder), "lost", run=RUN, monitor="val/acc", mode="max").best is None
    )


def test_a_traceback_with_a_secret_is_found_in_a_redacted_log(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("one\nERROR\nTraceback: login with api_key=<redacted> failed\n")
    assert last_lines(log, without="Traceback: login with api_key=abc123 failed\n") == "one"


def test_only_the_last_lines_of_a_log_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(b"\xff" * 100_000 + b"".join(b"line %d\n" % i for i in range(100)))
    assert last_lines(log).splitlines() == [f"line {i}" for i in range(80, 100)]
    assert last_lines(tmp_path) == last_lines(log)
    assert last_lines(tmp_path / "gone") == ""
    (tmp_path / "empty").mkdir()
    assert last_lines(tmp_path / "empty") == ""
