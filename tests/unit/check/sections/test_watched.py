from __future__ import annotations

from typing import Any

import pytest

from epochal.check import check
from epochal.check.sections import monitor
from epochal.config import load
from epochal.engine.optim import average

ACC = 'def batch_metric(self, out, batch): return {"acc": (1, 1)}'
ERR = "def post_metric_to_err(self, result): return 1"
STOP = {"type": "EarlyStopping", "patience": 3}
PLATEAU = {"type": "ReduceLROnPlateau"}


def shown(report) -> list[tuple[str, str, str]]:
    return [(problem.key, problem.what, problem.hint) for problem in report.problems]


@pytest.mark.parametrize(
    ("monitor", "train", "hint"),
    [
        ("+test/acc", {}, "set train.eval_every: {val: 1ep, test: 1ep}"),
        (
            "+test/acc",
            {"eval_every": {"val": "1ep"}},
            "set train.eval_every: {val: 1ep, test: 1ep}",
        ),
        ("+test/acc", {"eval_at_end": True}, "set train.eval_every: {val: 1ep, test: 1ep}"),
        ("+val/acc", {"eval_every": 0}, "set train.eval_every: {val: 1ep}"),
        ("+val/acc", {"eval_every": {"test": "1ep"}}, "set train.eval_every: {val: 1ep}"),
        ("+val/acc", {"eval_every": {"val": 0, "test": "1ep"}}, "set train.eval_every: {val: 1ep}"),
    ],
)
def test_a_split_that_is_never_evaluated_cannot_be_monitored(
    check_task, monitor: str, train: dict, hint: str
) -> None:
    what = f"nothing evaluates {monitor[1:].split('/')[0]!r} while training"
    assert shown(check_task(ACC, monitor=monitor, train=train)) == [("monitor", what, hint)]
    found = shown(check_task(ACC, monitor={"metric": monitor[1:], "mode": "max"}, train=train))
    assert found == [("monitor.metric", what, hint)]


@pytest.mark.parametrize(
    ("monitor", "train"),
    [
        ("+val/acc", {"eval_every": {"dev": "5st"}}),
        ("+val/acc", {"eval_every": 0, "eval_at_end": True}),
        ("+val/acc", {"eval_every": {"val": 0}, "eval_at_start": True}),
        ("-train/loss", {"eval_every": 0}),
    ],
)
def test_a_split_that_is_evaluated_somehow_can_be_monitored(
    check_task, monitor: str, train: dict
) -> None:
    assert shown(check_task(ACC, monitor=monitor, train=train)) == []


@pytest.mark.parametrize(
    "sections",
    [
        {"hooks": [{"type": "user.own.Tester"}]},
        {"hooks": [{"type": "user.own.Unknown"}]},
        {"runner": "user.own.Longer"},
    ],
)
def test_code_that_may_evaluate_is_trusted(check_task, write_files, sections: dict) -> None:
    text = """
        import epochal as ep
        from epochal.engine import Train
        from elsewhere import Thing
        class Tester(ep.Hook):
            def epoch_end(self, run, split): run.evaluate("test")
        class Unknown(Thing): ...
        class Longer(Train): ...
    """
    write_files({"user/own.py": text})
    assert shown(check_task(ACC, monitor="+test/acc", **sections)) == []


def test_a_task_that_evaluates_by_itself_is_trusted(check_task) -> None:
    methods = f'{ACC}\ndef epoch_end(self, run, split): run.evaluate("test")'
    assert shown(check_task(methods, monitor="+test/acc")) == []


@pytest.mark.parametrize(
    ("monitor", "hint"),
    [
        ("+dev/acc", "write +val/acc"),
        ("+acc", "write +val/acc"),
        ("+best/acc", "write +val/best/acc"),
    ],
)
def test_a_monitor_names_a_split_first(check_task, monitor: str, hint: str) -> None:
    unknown = "def batch_metric(self, out, batch): return self.compute(out)"
    what = f"{monitor[1:]!r} does not start with a split"
    assert shown(check_task(unknown, monitor=monitor)) == [("monitor", what, hint)]


def test_data_without_val_cannot_be_monitored(check_dict) -> None:
    spec = {"type": "torch.utils.data.StackDataset"}
    report = check_dict(task=None, data={"train": spec}, monitor="-val/loss")
    assert shown(report) == [
        ("monitor", "there is no data.val to evaluate", "add data.val, or write -train/loss")
    ]
    assert check_dict(data={"train": spec}, monitor="+val/acc").ok


@pytest.mark.parametrize(
    ("sections", "key", "name"),
    [
        ({"hooks": [STOP]}, "hooks.0", "EarlyStopping"),
        ({"schedule": PLATEAU}, "schedule", "ReduceLROnPlateau"),
    ],
)
def test_what_watches_the_monitor_needs_one(check_task, sections: Any, key: str, name: str) -> None:
    assert shown(check_task(ACC, **sections)) == [
        (
            key,
            f"{name} needs a monitor, and the run has none",
            "add monitor: -val/loss, or +val/acc if larger is better",
        )
    ]
    assert shown(check_task(ACC, monitor="+val/acc", **sections)) == []
    assert shown(check_task(ERR, **sections)) == []
    assert shown(check_task("post_metric_to_err = other", **sections)) == []


def test_a_monitor_that_a_broken_file_may_hold_is_not_missed(
    check_task, tmp_path, write_files
) -> None:
    report = check_task(ACC, hooks=[STOP], **{"$BASE": str(tmp_path / "nowhere.yaml")})
    assert [problem.key for problem in report.problems] == ["$BASE"]


def test_objects_that_nobody_can_read_are_trusted(user_registry) -> None:
    def checked(given: str, **sections: Any) -> list[tuple[str, str, str]]:
        parts = {
            "task": {"type": "user.task.Shapes"},
            "model": {"type": "user.model.Mlp", "classes": 3},
            "optim": "SGD",
        }
        return shown(check(load(parts | sections), user_registry, given={given}))

    assert checked("hooks", monitor="+test/acc") == []
    assert checked("optim", monitor="+test/acc") != []
    assert checked("metrics", monitor="+val/other") == []
    assert checked("task", monitor="+val/other") == []
    assert checked("optim", monitor="+val/other") != []


def test_averaged_weights_can_be_monitored_if_somebody_averages(check_task) -> None:
    average = {"type": "ema"}
    assert shown(check_task(ACC, monitor="+val_ema/acc", average=average)) == []
    assert shown(check_task(ACC, monitor="+val_ema/acc")) == [
        (
            "monitor",
            "nothing averages the weights",
            "add average: {type: ema}, or write +val/acc",
        )
    ]


def test_averaged_weights_are_evaluated_with_val(check_task) -> None:
    found = check_task(
        ACC, monitor="+val_ema/acc", average={"type": "ema"}, train={"eval_every": 0}
    )
    assert shown(found) == [
        (
            "monitor",
            "nothing evaluates 'val' while training",
            "set train.eval_every: {val: 1ep}",
        )
    ]


def test_an_unknown_metric_of_averaged_weights_is_found(check_task) -> None:
    (problem,) = check_task(ACC, monitor="+val_ema/accu", average={"type": "ema"}).problems
    assert problem.what == "nothing produces the metric 'val_ema/accu'"


@pytest.mark.parametrize(
    ("average", "key", "what"),
    [
        ({"type": "ema", "decay": 1.0}, "average.decay", "must be below 1, got 1.0"),
        ({"type": "ema", "decay": -1}, "average.decay", "must be at least 0, got -1"),
        ({"type": "ema", "dekay": 0.9}, "average.dekay", "unknown argument 'dekay' of"),
        ({"type": "emma"}, "average.type", "unknown average 'emma'"),
    ],
)
def test_mistakes_of_the_average_are_found(check_task, average: Any, key: str, what: str) -> None:
    (problem,) = check_task(ACC, monitor="+val_ema/acc", average=average).problems
    assert problem.key == key
    assert problem.what.startswith(what)


def test_the_name_of_averaged_weights_is_that_of_the_engine() -> None:
    assert monitor.AVERAGED_SPLIT == average.AVERAGED_SPLIT


@pytest.mark.parametrize(
    ("until", "problem"),
    [
        (
            "val/acu >= 0.9",
            ("nothing produces the metric 'val/acu'", "did you mean 'val/acc >= 0.9'?"),
        ),
        (
            "acc >= 0.9",
            ("nothing produces the metric 'acc'", "did you mean 'val/acc >= 0.9'?"),
        ),
        (
            "test/acc >= 0.9",
            (
                "nothing evaluates 'test' while training",
                "set train.eval_every: {val: 1ep, test: 1ep}",
            ),
        ),
        (
            "val_ema/acc >= 0.9",
            (
                "nothing averages the weights",
                "add average: {type: ema}, or write val/acc >= 0.9",
            ),
        ),
        ("val/acc > 0.9", ("expected a condition, got 'val/acc > 0.9'", None)),
        ("-val/acc >= 0.9", ("the sign of '-val/acc >= 0.9' contradicts '>='", None)),
    ],
)
def test_a_target_that_can_never_be_reached_is_reported(
    check_task, until: str, problem: tuple[str, str | None]
) -> None:
    [(key, what, hint)] = shown(check_task(ACC, train={"until": until}))
    assert (key, what) == ("train.until", problem[0])
    assert problem[1] is None or hint == problem[1]


def test_a_target_that_is_measured_is_fine(check_task) -> None:
    for until in ("+val/acc >= 0.9", "train/acc >= 0.1", None):
        assert shown(check_task(ACC, train={"until": until})) == []
