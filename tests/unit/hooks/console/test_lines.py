"""Log lines: the whole line as a user reads it."""

from __future__ import annotations

import pytest

from epochal.hooks.console.lines import (
    Pace,
    Position,
    Reading,
    interval_line,
    show_count,
    summary_line,
)

POSITION = Position(epoch=3, num_epochs=10, index=50, length=225)


def test_interval_line_says_everything_in_one_line() -> None:
    line = interval_line(
        POSITION,
        Pace(left=62.0),
        Reading(
            values={"loss": 0.3412, "acc": 0.9012},
            lr=1e-3,
            step_seconds=0.012,
            data_seconds=0.001,
            memory_mib=312,
        ),
    )
    assert line == (
        "Epoch [ 3/10][ 50/225]  lr: 1.0e-03  eta: 0:01:02  time: 0.012  data_time: 0.001  "
        "memory: 312  loss: 0.3412  acc: 0.9012"
    )


def test_what_is_not_known_is_left_out() -> None:
    position = Position(epoch=3, num_epochs=None, index=7, length=None)
    assert interval_line(position, Pace(), Reading(values={"loss": 2.0})) == (
        "Epoch [3][7]  loss: 2.0000"
    )


def test_gradient_norm_stands_before_the_values() -> None:
    line = interval_line(POSITION, Pace(), Reading(values={"loss": 1.0}, grad_norm=0.5))
    assert line.endswith("grad_norm: 0.5000  loss: 1.0000")


@pytest.mark.parametrize(("index", "total", "text"), [(7, 225, "  7/225"), (7, None, "7")])
def test_counts_keep_their_width(index: int, total: int | None, text: str) -> None:
    assert show_count(index, total) == text


def test_lines_of_one_epoch_are_equally_long() -> None:
    lengths = {
        len(
            interval_line(
                Position(epoch=1, num_epochs=10, index=index, length=1000),
                Pace(left=1000.0 - index),
                Reading(values={"loss": 1 / index}, lr=1e-3 / index, step_seconds=0.01),
            )
        )
        for index in (1, 50, 200, 1000)
    }
    assert len(lengths) == 1


def test_summary_marks_the_best_evaluation() -> None:
    values = {"acc": 0.9, "err": 0.1}
    plain = summary_line(POSITION, "val", values, seconds=1.23, best=False)
    assert plain == "Epoch [ 3/10]  val    acc: 0.9000  err: 0.1000  (1.23 s)"
    assert summary_line(POSITION, "val", values, seconds=1.23, best=True) == plain + "  * best"


def test_an_evaluation_without_training_is_in_no_epoch() -> None:
    nowhere = Position(epoch=0, num_epochs=None, index=0, length=None)
    line = summary_line(nowhere, "test", {"acc": 0.9}, seconds=0.02, best=False)
    assert line == "test   acc: 0.9000  (20 ms)"
