from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from epochal.errors import Problem


def shown(problems: tuple[Problem, ...]) -> list[str]:
    return [str(problem) for problem in problems]


ACC = 'def batch_metric(self, out, batch): return {"acc": (1, 1)}'


@pytest.mark.parametrize(
    ("methods", "sections"),
    [
        (ACC, {"monitor": "+val/acc"}),
        (ACC, {"monitor": {"metric": "val/acc", "mode": "max"}}),
        (ACC, {"monitor": "+val/clean/acc"}),
        (ACC, {"monitor": "+test/acc", "train": {"eval_every": {"test": "1ep"}}}),
        ("", {"monitor": "-train/loss"}),
        ("", {"monitor": "-train/aux"}),
        ("", {"monitor": "-val/loss", "train": {"eval_loss": True}}),
        ("def post_metric_to_err(self, result): ...", {"monitor": "-val/err"}),
        ("def epoch_metric(self, run): return dict(auc=1.0)", {"monitor": "+val/auc"}),
        ("", {"monitor": "+val/a", "metrics": [{"type": "accuracy", "name": "a"}]}),
        ("", {"monitor": None}),
    ],
)
def test_producible_metrics_are_accepted(check_task, methods: str, sections: dict) -> None:
    assert shown(check_task(methods, **sections).problems) == []


@pytest.mark.parametrize(
    ("methods", "monitor", "hint"),
    [
        (ACC, "+val/accu", "did you mean '+val/acc'?"),
        (ACC, "+acc", "did you mean '+val/acc'?"),
        (ACC, "-val/loss", "set train.eval_loss=true to compute losses in evaluation"),
        (ACC, "-predict/zzz", "can be: train/acc, train/aux, train/loss, val/acc"),
        ("", "-val/err", "can be: train/aux, train/loss"),
    ],
)
def test_impossible_metrics_are_reported_with_the_possible(
    check_task, methods: str, monitor: str, hint: str
) -> None:
    (problem,) = check_task(methods, monitor=monitor).problems
    assert problem.what == f"nothing produces the metric {monitor[1:]!r}"
    assert problem.hint == hint


def test_a_metric_in_a_mapping_is_checked_too(check_task) -> None:
    (problem,) = check_task(ACC, monitor={"metric": "+val/accu"}).problems
    assert (problem.key, problem.hint) == ("monitor.metric", "did you mean '+val/acc'?")


@pytest.mark.parametrize(
    "methods",
    [
        "def batch_metric(self, out, batch): return self.compute(out)",
        "def batch_metric(self, out, batch): return {name: (1, 1) for name in self.names}",
        "def batch_metric(self, out, batch): return {**out}",
        "def batch_metric(self, out, batch):\n    m = {}\n    m.update(out)\n    return m",
        "def batch_metric(self, out, batch):\n    m = {}\n    m[self.name] = 1\n    return m",
        "def __init__(self): self.batch_metric = len",
        "def batch_metric(self, out, batch): yield 1",
        "def epoch_metric(self, run): return dict(run.latest)",
        "batch_metric = Other.batch_metric",
        "if True:\n    batch_metric = Other.batch_metric",
    ],
)
def test_names_that_only_running_could_tell_are_not_doubted(check_task, methods: str) -> None:
    assert shown(check_task(methods, monitor="+val/anything").problems) == []


def test_a_metric_without_a_name_may_be_called_anything(check_task) -> None:
    assert check_task("", monitor="+val/x", metrics=[{"type": "accuracy"}]).ok


def test_a_mapping_filled_item_by_item_is_followed(check_task) -> None:
    methods = (
        "def batch_metric(self, out, batch):\n"
        '    found = {"a": (1, 1)}\n    found["b"] = (2, 1)\n    return found'
    )
    assert check_task(methods, monitor="+val/b").ok
    (problem,) = check_task(methods, monitor="+val/c").problems
    assert problem.key == "monitor"


def test_a_monitor_must_say_which_way_is_better(check_task) -> None:
    (problem,) = check_task(ACC, monitor="val/acc").problems
    assert problem.what == "does not say which way is better: 'val/acc'"
    assert problem.hint.startswith("write '+val/acc' if larger is better")


def test_a_wrong_mode_is_one_of_two(check_task) -> None:
    (problem,) = check_task(ACC, monitor={"metric": "val/acc", "mode": "mx"}).problems
    assert (problem.key, problem.hint) == ("monitor.mode", "did you mean 'max'?")


def test_a_monitor_of_another_type_is_refused(check_task) -> None:
    (problem,) = check_task(ACC, monitor=3).problems
    assert problem.what == "expected text or a mapping or null, got 3"


def test_the_hint_is_never_an_empty_list(check_dict, write_files) -> None:
    text = (
        "import epochal as ep\nclass Bare(ep.Task):\n  def batch_forward(self, model, batch): ..."
    )
    write_files({"user/bare.py": text})
    report = check_dict(task={"type": "user.bare.Bare"}, monitor="+val/acc")
    (problem,) = [problem for problem in report.problems if problem.key == "monitor"]
    assert problem.hint == "return 'acc' from batch_metric of the task, or add it under metrics"


def test_the_sign_of_a_mapping_is_kept(check_task) -> None:
    report = check_task(ACC, monitor={"metric": "+val/acc", "min_delta": 0.1})
    assert not report.problems
    assert report.expanded.find("monitor.mode").value is None


def test_a_mapping_without_a_direction_is_a_mistake(check_task) -> None:
    (problem,) = check_task(ACC, monitor={"metric": "val/acc"}).problems
    assert problem.what == "does not say which way is better: 'val/acc'"


def test_a_mode_against_the_sign_is_a_mistake(check_task) -> None:
    (problem,) = check_task(ACC, monitor={"metric": "+val/acc", "mode": "min"}).problems
    assert (problem.key, problem.what) == (
        "monitor.mode",
        "'min' contradicts the sign of '+val/acc'",
    )


def test_worse_values_cannot_count_as_better(check_task) -> None:
    report = check_task(ACC, monitor={"metric": "+val/acc", "min_delta": -0.1})
    (problem,) = report.problems
    assert (problem.key, problem.what) == ("monitor.min_delta", "must be at least 0, got -0.1")
