"""What mails say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epochal.records.mail import Story, compose

STORY = Story(
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


def test_a_subject_says_outcome_run_duration_and_best_value() -> None:
    assert compose(STORY).subject == "finished: digits a3f9, 2 h 5 min, best val/acc 0.9712"


def test_the_subject_of_a_test_has_its_figures() -> None:
    metrics = {"test/acc": 0.97123, "test/loss": 0.1, "train/loss": 0.2, "train/epoch/loss": 0.2}
    story = replace(STORY, best=None, metrics=metrics)
    assert (
        compose(story).subject == "finished: digits a3f9, 2 h 5 min, test/acc 0.9712, test/loss 0.1"
    )
    assert "  results  test/acc 0.9712  test/loss 0.1  train/loss 0.2\n" in compose(story).text
    metrics = {f"test/{name}": 1.0 for name in "abcd"}
    assert compose(replace(story, metrics=metrics)).subject.endswith("test/a 1, test/b 1, test/c 1")


@pytest.mark.parametrize(
    ("kind", "why", "subject"),
    [
        ("failed", "ValueError: torn", "failed: digits a3f9, 3 min 20 s, ValueError: torn"),
        ("lost", "its process is gone", "lost: digits a3f9, 3 min 20 s, its process is gone"),
        ("out_of_disk", "", "out of disk: digits a3f9, 3 min 20 s"),
        ("gave_up", "it failed 3 times", "given up: digits a3f9, 3 min 20 s, it failed 3 times"),
        ("stalled", "nothing for 1800 s", "stands still: digits a3f9, 3 min 20 s, nothing for"),
        ("diverged", "", "diverged: digits a3f9, 3 min 20 s"),
        ("sweep_done", "50 trials", "sweep done: digits a3f9, 3 min 20 s, 50 trials"),
    ],
)
def test_every_kind_has_a_subject(kind, why: str, subject: str) -> None:
    story = replace(STORY, kind=kind, why=why, seconds=200.0, best=None)
    assert compose(story).subject.startswith(subject)


def test_a_variant_belongs_to_the_name() -> None:
    story = replace(STORY, sender={"variant": "wide"})
    assert compose(story).subject.startswith("finished: digits/wide a3f9,")


def test_a_subject_is_one_line_and_not_too_long() -> None:
    story = replace(STORY, kind="failed", tag="di\ngits", why="x" * 500 + "\nmore")
    subject = compose(story).subject
    assert "\n" not in subject
    assert len(subject) == 160
    assert subject.endswith("…")


def test_the_text_has_all_that_one_needs_at_night() -> None:
    story = replace(
        STORY,
        kind="failed",
        why="ValueError: torn\nrow 3",
        traceback="Traceback ...\nValueError: torn",
        log="12:00 all is well",
    )
    assert compose(story).text == (
        "digits a3f9: failed\n"
        "  does a wider one help?\n"
        "\n"
        "  length   epoch 3, step 1200, 2 h 5 min\n"
        "  best     val/acc 0.9712\n"
        "  results  val/acc 0.97\n"
        "  why      ValueError: torn\n"
        "           row 3\n"
        "  machine  box7\n"
        "  folder   /data/runs/shop/digits/20261115-031200-a3f9\n"
        "  next     epochal show 20261115-031200-a3f9\n"
        "           epochal resume 20261115-031200-a3f9\n"
        "\ntraceback:\n\nTraceback ...\nValueError: torn\n"
        "\nlast log lines:\n\n12:00 all is well\n"
    )


def test_what_has_taken_no_step_is_not_to_be_resumed() -> None:
    assert "resume" not in compose(replace(STORY, kind="failed", step=0)).text


def test_secrets_are_not_told() -> None:
    story = replace(STORY, why="GET https://ann:hunter22@example.org", log="password=hunter22")
    mail = compose(story)
    assert "hunter22" not in f"{mail}"
    assert "example.org" in mail.subject


def test_endings_of_one_attempt_are_one_mail_and_runs_without_a_folder_several() -> None:
    lost, later = (compose(replace(STORY, kind=kind, what="end")) for kind in ("lost", "finished"))
    again = compose(replace(STORY, attempt=1, what="end"))
    assert lost.id == later.id != again.id
    nowhere = replace(STORY, run="", folder="")
    assert "next" not in compose(nowhere).text
    assert compose(nowhere).subject.startswith("finished: digits, 2 h")
