from __future__ import annotations

from typing import Any

from tests.unit.check.problems import problems_of

from epochal.check import check
from epochal.check.sections.monitor import AVERAGED_SPLIT
from epochal.config import load
from epochal.engine.interfaces.average import AVERAGED_SPLIT as ENGINE_AVERAGED_SPLIT
from epochal.registry import Project, Registry

ACC = 'def batch_metric(self, out, batch): return {"acc": (1, 1)}'


def test_metrics_that_are_produced_are_accepted(check_task) -> None:
    for methods, sections in (
        (ACC, {"monitor": "+val/acc"}),
        (ACC, {"monitor": {"metric": "val/acc", "mode": "max"}}),
        (ACC, {"monitor": "+val/clean/acc"}),
        (ACC, {"monitor": "+test/acc", "train": {"eval_every": {"test": "1ep"}}}),
        ("", {"monitor": "-train/loss"}),
        ("", {"monitor": "-train/aux"}),
        ("", {"monitor": "-val/loss", "train": {"eval_loss": True}}),
        ("", {"monitor": "-val/loss"}),
        ("", {"monitor": {"metric": "val/loss", "mode": "min"}}),
        ("", {"monitor": "-val/clean/loss"}),
        ("", {"train": {"until": "val/loss <= 0.1"}}),
        ("def post_metric_to_err(self, result): ...", {"monitor": "-val/err"}),
        ("def epoch_metric(self, run): return dict(auc=1.0)", {"monitor": "+val/auc"}),
        ("", {"monitor": "+val/a", "metrics": [{"type": "accuracy", "name": "a"}]}),
        ("", {"monitor": None}),
    ):
        assert problems_of(check_task(methods, **sections)) == []


def test_unknown_metrics_are_reported_with_a_hint(check_task) -> None:
    for methods, monitor, hint in (
        (ACC, "+val/accu", "did you mean '+val/acc'?"),
        (ACC, "+acc", "did you mean '+val/acc'?"),
        (ACC, "-val/aux", "set train.eval_loss=true to compute losses in evaluation"),
        (ACC, "-predict/zzz", "can be: train/acc, train/aux, train/loss, val/acc"),
        ("", "-val/err", "can be: train/aux, train/loss"),
    ):
        (problem,) = check_task(methods, monitor=monitor).problems
        assert problem.what == f"nothing produces the metric {monitor[1:]!r}"
        assert problem.hint == hint


def test_a_watched_loss_needs_evaluations_that_compute_it(check_task) -> None:
    (problem,) = check_task("", monitor="-val/loss", train={"eval_loss": False}).problems
    assert problem.hint == "set train.eval_loss=true to compute losses in evaluation"


def test_metrics_that_the_source_does_not_show_may_exist(check_task) -> None:
    for methods in (
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
    ):
        assert problems_of(check_task(methods, monitor="+val/anything")) == []


def test_a_metric_without_a_name_may_have_any_name(check_task) -> None:
    assert check_task("", monitor="+val/x", metrics=[{"type": "accuracy"}]).ok


def test_keys_assigned_to_a_local_mapping_are_known(check_task) -> None:
    methods = (
        "def batch_metric(self, out, batch):\n"
        '    found = {"a": (1, 1)}\n    found["b"] = (2, 1)\n    return found'
    )
    assert check_task(methods, monitor="+val/b").ok
    (problem,) = check_task(methods, monitor="+val/c").problems
    assert problem.key == "monitor"


def test_mistakes_in_monitor_are_reported(check_task) -> None:
    better = "does not say which way is better: 'val/acc'"
    for monitor, key, what, hint in (
        ("val/acc", "monitor", better, "write '+val/acc' if larger is better"),
        ({"metric": "val/acc"}, "monitor.metric", better, "write '+val/acc'"),
        ("val_acc", "monitor", "does not say which way is better", "write '+val/acc' if larger"),
        ({"metric": "+val/accu"}, "monitor.metric", "nothing produces", "did you mean '+val/acc'?"),
        ({"metric": "val/acc", "mode": "mx"}, "monitor.mode", "expected", "did you mean 'max'?"),
        (
            {"metric": "+val/acc", "mode": "min"},
            "monitor.mode",
            "'min' contradicts the sign of '+val/acc'",
            "leave out one of them",
        ),
        ({"metric": "+val/acc", "min_delta": -0.1}, "monitor.min_delta", "must be at least 0", ""),
        (3, "monitor", "expected text or a mapping or null, got 3", ""),
    ):
        ((found_key, found_what, found_hint),) = problems_of(check_task(ACC, monitor=monitor))
        assert found_key == key, monitor
        assert found_what.startswith(what), monitor
        assert found_hint.startswith(hint), monitor


def test_a_task_without_metrics_gets_a_hint(check_dict, write_files) -> None:
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


ERR = "def post_metric_to_err(self, result): return 1"
STOP = {"type": "EarlyStopping", "patience": 3}
PLATEAU = {"type": "ReduceLROnPlateau"}


def test_a_split_that_is_never_evaluated_cannot_be_monitored(check_task) -> None:
    for monitor, train, hint in (
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
    ):
        what = f"nothing evaluates {monitor[1:].split('/')[0]!r} while training"
        assert problems_of(check_task(ACC, monitor=monitor, train=train)) == [
            ("monitor", what, hint)
        ]
        found = problems_of(
            check_task(ACC, monitor={"metric": monitor[1:], "mode": "max"}, train=train)
        )
        assert found == [("monitor.metric", what, hint)]


def test_a_split_that_is_evaluated_can_be_monitored(check_task) -> None:
    for monitor, train in (
        ("+val/acc", {"eval_every": {"dev": "5st"}}),
        ("+val/acc", {"eval_every": 0, "eval_at_end": True}),
        ("+val/acc", {"eval_every": {"val": 0}, "eval_at_start": True}),
        ("-train/loss", {"eval_every": 0}),
    ):
        assert problems_of(check_task(ACC, monitor=monitor, train=train)) == []


def test_code_that_may_evaluate_is_not_checked(check_task, write_files) -> None:
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
    for sections in (
        {"hooks": [{"type": "user.own.Tester"}]},
        {"hooks": [{"type": "user.own.Unknown"}]},
        {"runner": "user.own.Longer"},
    ):
        assert problems_of(check_task(ACC, monitor="+test/acc", **sections)) == []
    methods = f'{ACC}\ndef epoch_end(self, run, split): run.evaluate("test")'
    assert problems_of(check_task(methods, monitor="+test/acc")) == []


def test_a_monitor_must_start_with_a_split(check_task) -> None:
    for monitor, hint in (
        ("+dev/acc", "write +val/acc"),
        ("+acc", "write +val/acc"),
        ("+best/acc", "write +val/best/acc"),
        ("-val_loss", "write -val/loss"),
        ("-valid_loss", "write -val/loss"),
        ("-train_loss", "write -train/loss"),
        ("-top_loss", "write -val/top_loss"),
    ):
        unknown = "def batch_metric(self, out, batch): return self.compute(out)"
        what = f"{monitor[1:]!r} does not start with a split"
        assert problems_of(check_task(unknown, monitor=monitor)) == [("monitor", what, hint)]


def test_hooks_take_no_monitor_of_their_own(check_task) -> None:
    hook = {"type": "EarlyStopping", "patience": 3, "monitor": "val_loss", "mode": "min"}
    hint = "the whole run has one monitor: write monitor: -val/loss outside of hooks"
    report = check_task(ACC, monitor="+val/acc", hooks=[hook])
    assert [(key, said) for key, _, said in problems_of(report)] == [
        ("hooks.0.monitor", hint),
        ("hooks.0.mode", hint),
    ]


def test_data_without_val_cannot_be_monitored(check_dict) -> None:
    spec = {"type": "torch.utils.data.StackDataset"}
    report = check_dict(task=None, data={"train": spec}, monitor="-val/loss")
    assert problems_of(report) == [
        ("monitor", "there is no data.val to evaluate", "add data.val, or write -train/loss")
    ]
    assert check_dict(data={"train": spec}, monitor="+val/acc").ok


def test_hooks_and_schedules_that_watch_the_monitor_need_one(check_task) -> None:
    for sections, key, name in (
        ({"hooks": [STOP]}, "hooks.0", "EarlyStopping"),
        ({"schedule": PLATEAU}, "schedule", "ReduceLROnPlateau"),
    ):
        assert problems_of(check_task(ACC, **sections)) == [
            (
                key,
                f"{name} needs a monitor, and the run has none",
                "add monitor: -val/loss, or +val/acc if larger is better",
            )
        ]
        assert problems_of(check_task(ACC, monitor="+val/acc", **sections)) == []
        assert problems_of(check_task(ERR, **sections)) == []
        assert problems_of(check_task("post_metric_to_err = other", **sections)) == []


def test_a_monitor_that_an_unreadable_file_may_set_is_not_reported(
    check_task, tmp_path, write_files
) -> None:
    report = check_task(ACC, hooks=[STOP], **{"$BASE": str(tmp_path / "nowhere.yaml")})
    assert [problem.key for problem in report.problems] == ["$BASE"]


def test_parts_given_as_objects_are_not_checked(user_registry) -> None:
    def checked(given: str, **sections: Any) -> list[tuple[str, str, str]]:
        parts = {
            "task": {"type": "user.task.Shapes"},
            "model": {"type": "user.model.Mlp", "classes": 3},
            "optim": "SGD",
        }
        return problems_of(check(load(parts | sections), user_registry, given={given}))

    assert checked("hooks", monitor="+test/acc") == []
    assert checked("optim", monitor="+test/acc") != []
    assert checked("metrics", monitor="+val/other") == []
    assert checked("task", monitor="+val/other") == []
    assert checked("optim", monitor="+val/other") != []


def test_averaged_weights_can_be_monitored_if_the_config_averages(check_task) -> None:
    for metric, sections, problem in (
        ("acc", {"average": {"type": "ema"}}, None),
        (
            "acc",
            {},
            ("nothing averages the weights", "add average: {type: ema}, or write +val/acc"),
        ),
        (
            "acc",
            {"average": {"type": "ema"}, "train": {"eval_every": 0}},
            ("nothing evaluates 'val' while training", "set train.eval_every: {val: 1ep}"),
        ),
        (
            "accu",
            {"average": {"type": "ema"}},
            ("nothing produces the metric 'val_ema/accu'", "did you mean '+val_ema/acc'?"),
        ),
    ):
        found = problems_of(check_task(ACC, monitor=f"+val_ema/{metric}", **sections))
        assert found == ([] if problem is None else [("monitor", *problem)])


def test_mistakes_in_average_are_reported(check_task) -> None:
    for average, key, what in (
        ({"type": "ema", "decay": 1.0}, "average.decay", "must be below 1, got 1.0"),
        ({"type": "ema", "decay": -1}, "average.decay", "must be at least 0, got -1"),
        ({"type": "ema", "dekay": 0.9}, "average.dekay", "unknown argument 'dekay' of"),
        ({"type": "emma"}, "average.type", "unknown average 'emma'"),
    ):
        (problem,) = check_task(ACC, monitor="+val_ema/acc", average=average).problems
        assert problem.key == key
        assert problem.what.startswith(what)


def test_the_split_of_averaged_weights_equals_that_of_the_engine() -> None:
    assert AVERAGED_SPLIT == ENGINE_AVERAGED_SPLIT


def test_a_condition_that_can_never_be_met_is_reported(check_task) -> None:
    for until, problem in (
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
        ("val/acc > 0.9", ("expected a condition, got 'val/acc > 0.9'", "write 'val/acc >= 0.9'")),
        ("-val/acc >= 0.9", ("the sign of '-val/acc >= 0.9' contradicts '>='", None)),
    ):
        [(key, what, hint)] = problems_of(check_task(ACC, train={"until": until}))
        assert (key, what) == ("train.until", problem[0])
        assert problem[1] is None or hint == problem[1]


def test_a_condition_on_a_measured_metric_is_accepted(check_task) -> None:
    for until in ("+val/acc >= 0.9", "train/acc >= 0.1", None):
        assert problems_of(check_task(ACC, train={"until": until})) == []


def test_a_monitor_names_one_of_several_loaders(write_files) -> None:
    text = "from torch import nn\nclass Net(nn.Module): ...\nclass Rows: ..."
    project = Project(write_files({"m.py": text}))
    rows = {"type": "m.Rows"}
    base = {
        "model": {"type": "m.Net"},
        "data": {"train": rows, "val": {"clean": rows, "noisy": rows}},
        "optim": {"type": "SGD"},
        "loss": {"type": "mse"},
        "train": {"eval_loss": True},
    }
    for monitor, hint in (
        ("-val/loss", "write -val/clean/loss"),
        ("-val/clean/loss", ""),
        ("-val/noisy/loss", ""),
        ("-train/loss", ""),
    ):
        report = check(load(base | {"monitor": monitor}), Registry(project))
        assert [one.hint for one in report.problems] == [hint] * bool(hint), monitor
        for problem in report.problems:
            assert problem.what == "each loader of val has its own metrics: clean, noisy"
