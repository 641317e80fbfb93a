"""Tests of what the check says about schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.check.problems import problems_of

from epochal.check import check
from epochal.config import load

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.registry import Registry


def test_one_cycle_of_torch_needs_the_number_of_steps(check_dict) -> None:
    schedule = {"type": "OneCycleLR", "max_lr": 0.1}
    assert problems_of(check_dict(schedule=schedule)) == [
        (
            "schedule.total_steps",
            "missing; OneCycleLR must know the number of steps",
            "add total_steps: 500, with train: {for: 500st}",
        )
    ]
    assert len(problems_of(check_dict(schedule=schedule | {"epochs": 3}))) == 1
    assert check_dict(schedule=schedule | {"epochs": 3, "steps_per_epoch": 9}).ok
    assert check_dict(schedule=schedule | {"total_steps": 500}).ok
    assert len(problems_of(check_dict(schedule=schedule | {"totl_steps": 500}))) == 1


def test_good_schedules_are_accepted(check_dict) -> None:
    for schedule in (
        "constant",
        "linear",
        {"type": "cosine", "restarts": 2, "growth": 2, "peak_decay": 0.5, "warmup": "1ep"},
        {"type": "polynomial", "power": 2, "over": "5ep"},
        {"type": "step", "every": "30ep"},
        {"type": "multi_step", "milestones": [100, "2000st", "30ep"]},
        {"type": "exponential", "gamma": 0.9, "every": "1ep", "unit": "epoch"},
        "one_cycle",
        {"type": "inverse_sqrt", "warmup": 100},
        {"type": "noam", "model_size": 512, "warmup": "4000st", "scale": 2.0},
        {"type": "wsd", "decay": "100st", "shape": "sqrt"},
        {"type": "wsd", "decay": 0.2},
        {"type": "plateau", "factor": 0.5, "warmup": 10, "warmup_start": 0.1},
        {"type": "CosineAnnealingLR", "T_max": 5, "warmup": "1ep", "unit": "eval"},
    ):
        report = check_dict(schedule=schedule, monitor="-train/loss")
        assert report.ok, str(report)


def test_mistakes_in_schedules_are_reported(check_dict) -> None:
    for schedule, key, what in (
        ({"type": "cosin"}, "type", "unknown schedule 'cosin'"),
        ({"type": "multistep"}, "type", "unknown schedule 'multistep'"),
        ({"type": "cosine", "warm_up": 5}, "warm_up", "unknown argument 'warm_up' of"),
        ({"type": "cosine", "lr_warmup_steps": 5}, "lr_warmup_steps", "unknown argument"),
        ({"type": "cosine", "warmup": -1}, "warmup", "must be at least 0, got -1"),
        ({"type": "cosine", "warmup": "2h"}, "warmup", "must be in steps or epochs, got '2h'"),
        ({"type": "StepLR", "step_size": 1, "warmup": "9sa"}, "warmup", "got '9sa'"),
        ({"type": "cosine", "warmup": 5, "warmup_start": 2}, "warmup_start", "at most 1, got 2"),
        ({"type": "cosine", "warmup_start": 0.1}, "warmup_start", "does nothing without a warm-up"),
        ({"type": "cosine", "min_factor": -0.1}, "min_factor", "must be at least 0, got -0.1"),
        ({"type": "cosine", "unit": "eval"}, "unit", "'eval' is for schedulers of torch"),
        ({"type": "cosine", "unit": "steps"}, "unit", "expected 'step' or 'epoch'"),
        ({"type": "cosine", "over": "1h"}, "over", "must be in steps or epochs, got '1h'"),
        ({"type": "step", "every": 0}, "every", "must be at least 1, got 0"),
        ({"type": "step", "every": 3, "gamma": -1}, "gamma", "must be at least 0, got -1"),
        ({"type": "step"}, "every", "missing"),
        (
            {"type": "multi_step", "milestones": [10, 5]},
            "milestones",
            "must ascend, but 5st follows 10st",
        ),
        (
            {"type": "multi_step", "milestones": ["2ep", "2ep"]},
            "milestones",
            "must ascend, but 2ep follows 2ep",
        ),
        ({"type": "MultiStepLR", "milestones": [10, 5]}, "milestones", "must ascend"),
        ({"type": "one_cycle", "rise": 1.5}, "rise", "must be at most 1, got 1.5"),
        ({"type": "noam", "model_size": 512}, "warmup", "missing; noam rises over it"),
        ({"type": "inverse_sqrt"}, "timescale", "missing; without a warm-up"),
        ({"type": "wsd", "shape": "cubic"}, "shape", "expected 'linear' or"),
    ):
        problems = problems_of(check_dict(schedule=schedule))
        assert [one[0] for one in problems] == [f"schedule.{key}"]
        assert what in problems[0][1]
        assert problems[0][2], "no hint"


def test_lengths_that_do_not_fit_the_training_are_reported(check_dict) -> None:
    for name, key, value, length, is_wrong in (
        ("cosine", "warmup", "500st", "400st", True),
        ("cosine", "warmup", 500, "500st", True),
        ("cosine", "warmup", "10ep", "5ep", True),
        ("cosine", "warmup", "500st", "501st", False),
        ("cosine", "warmup", "1ep", "400st", False),  # only the data knows
        ("cosine", "warmup", 0, "1st", False),
        ("wsd", "decay", "500st", "400st", True),
        ("wsd", "decay", "6ep", "5ep", True),
        ("wsd", "decay", "400st", "400st", False),
        ("wsd", "decay", 1, "1st", False),
    ):
        report = check_dict(schedule={"type": name, key: value}, train={"for": length})
        expected = [f"schedule.{key}"] * is_wrong
        assert [one[0] for one in problems_of(report)] == expected, (key, value, length)


def test_a_length_without_a_unit_is_the_only_mistake(check_dict) -> None:
    report = check_dict(schedule={"type": "cosine", "warmup": "50st"}, train={"for": 30})
    assert [one[0] for one in problems_of(report)] == ["train.for"]


def test_warm_ups_of_other_frameworks_are_translated(check_dict) -> None:
    for key, value, hint in (
        ("warmup_steps", 50, "write warmup: 50st"),
        ("num_warmup_steps", 50, "write warmup: 50st"),
        ("warmup_epochs", 2, "write warmup: 2ep"),
        ("warmup_ratio", 0.1, "did you mean 'warmup'?"),
    ):
        report = check_dict(schedule={"type": "cosine", key: value})
        assert [one[2] for one in problems_of(report)] == [hint], key


def test_epochs_of_a_limited_number_of_batches_are_counted_in_steps(check_dict) -> None:
    for warmup, limit, accumulate, is_wrong in (
        ("40st", 8, 1, True),
        ("39st", 8, 1, False),
        ("10st", 8, 4, True),
        ("40st", None, 1, False),
        ("1ep", 8, 1, False),
    ):
        report = check_dict(
            schedule={"type": "cosine", "warmup": warmup},
            train={"for": "5ep", "limit_batches": limit},
            optim={"type": "SGD", "lr": 1, "accumulate": accumulate},
        )
        expected = ["schedule.warmup"] * is_wrong
        row = warmup, limit, accumulate
        assert [one[0] for one in problems_of(report)] == expected, row


def test_one_cycle_of_torch_must_not_end_before_the_training(check_dict) -> None:
    schedule = {"type": "OneCycleLR", "max_lr": 0.1, "total_steps": 400}
    assert problems_of(check_dict(schedule=schedule, train={"for": "500st"})) == [
        (
            "schedule.total_steps",
            "OneCycleLR ends after 400 steps, and the training after 500st",
            "make both the same",
        )
    ]
    assert check_dict(schedule=schedule, train={"for": "400st"}).ok


def test_a_length_on_the_command_line_may_be_shorter_than_the_warmup(
    user_registry: Registry,
) -> None:
    config = {
        "task": "user.task.Shapes",
        "model": {"type": "user.model.Mlp", "classes": 3},
        "optim": {"type": "SGD", "lr": 1},
        "schedule": {"type": "cosine", "warmup": "500st"},
    }
    report = check(load(config, overrides=["train.for=10st"]), user_registry)
    assert report.ok, str(report)


def test_schedules_need_their_length_if_a_time_ends_the_run(
    check_dict,
) -> None:
    for name in ("linear", "cosine", "polynomial", "one_cycle", "wsd"):
        report = check_dict(schedule=name, train={"for": "2h"})
        assert problems_of(report) == [
            (
                "schedule.over",
                "missing; the number of steps in 2h is not known in advance",
                "add over: 10000st, or end the training by steps or epochs",
            )
        ], name
        assert check_dict(schedule={"type": name, "over": "1000st"}, train={"for": "2h"}).ok


def test_mistakes_have_the_place_of_their_values(tmp_path: Path, user_registry: Registry) -> None:
    path = tmp_path / "config.yaml"
    lines = [
        "task: user.task.Shapes",
        "model: {type: user.model.Mlp, classes: 3}",
        "optim: {type: SGD, lr: 1}",
        "schedule: {type: multi_step, milestones: [9, 3], gamma: -1}",
        "train: {for: 10st}",
    ]
    path.write_text("\n".join(lines))
    report = check(load(path), user_registry)
    assert [(one.key, one.place.line, one.place.column) for one in report.problems] == [
        ("schedule.gamma", 4, 57)
    ]
    path.write_text("\n".join(lines).replace(", gamma: -1", ", warmup: 20"))
    report = check(load(path), user_registry)
    assert [(one.key, one.place.line, one.place.column) for one in report.problems] == [
        ("schedule.milestones", 4, 42),
        ("schedule.warmup", 4, 58),
    ]
    lines[3] = "schedule: {type: noam, model_size: 8}"
    path.write_text("\n".join(lines))
    report = check(load(path), user_registry)
    assert [(one.key, str(one.place)) for one in report.problems] == [
        ("schedule.warmup", f"{path}:4:18")
    ]


def test_the_schedule_of_a_stage_must_fit_the_stage(check_dict) -> None:
    stages = [
        {"for": "5ep", "schedule": {"type": "cosine", "warmup": "9ep"}},
        {"for": "1h", "schedule": {"type": "linear"}},
    ]
    report = check_dict(stages=stages, train=None, schedule={"type": "cosine", "warmup": "99ep"})
    keys = [one[0] for one in problems_of(report)]
    assert keys == ["stages.0.schedule.warmup", "stages.1.schedule.over"]


def test_the_schedule_of_one_of_several_optimizers_must_fit_the_run(check_dict) -> None:
    optim = {
        "one": {"type": "SGD", "lr": 1, "schedule": {"type": "cosine", "warmup": "9ep"}},
        "two": {
            "type": "SGD",
            "lr": 1,
            "match": "x",
            "schedule": {"type": "noam", "model_size": 1},
        },
    }
    keys = [one[0] for one in problems_of(check_dict(optim=optim, train={"for": "5ep"}))]
    assert keys == ["optim.one.schedule.warmup", "optim.two.schedule.warmup"]


def test_keys_of_an_unknown_schedule_are_checked(check_dict) -> None:
    schedule = {"type": "cosin", "warmup": "1epp", "warmup_start": -3, "restarts": 2}
    assert [key for key, *_ in problems_of(check_dict(schedule=schedule))] == [
        "schedule.type",
        "schedule.warmup",
        "schedule.warmup_start",
    ]
