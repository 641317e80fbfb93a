"""Tests of the section ``stages``, with one optimizer and with several."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.check.problems import problems_of

from epochal.check import check, expand_optimizer, stage_name
from epochal.config import from_plain, load
from epochal.errors import ConfigError
from epochal.registry import Project, Registry

TASK = """
    import epochal as ep

    class Shapes(ep.Task):
        def batch_forward(self, model, batch): return {"out": model(batch)}
        def batch_loss(self, out, batch): return {"loss": (out["out"].mean(), 1)}
        def batch_metric(self, out, batch): return {"acc": (out["out"].mean(), 1)}
        def on_stage_start(self, run, name, *, mix: float = 0.0, mode: str = "soft"): ...

    class Needing(Shapes):
        def on_stage_start(self, *, mix: float): ...

    class Open(Shapes):
        def on_stage_start(self, run, **params): ...

    class Deaf(ep.Task):
        def batch_forward(self, model, batch): return {"out": model(batch)}
        def batch_loss(self, out, batch): return {"loss": (out["out"].mean(), 1)}

    class Lossless(ep.Task):
        def batch_forward(self, model, batch): return {"out": model(batch)}
"""


SEVERAL: dict[str, Any] = {
    "one": {"type": "SGD", "lr": 0.1, "match": "a"},
    "two": {"type": "AdamW"},
}


@pytest.fixture
def staged(write_files) -> Any:
    """Checks a config with these stages; other sections may be given too."""
    folder = write_files(
        {
            "user/task.py": TASK,
            "user/model.py": "from torch import nn\nclass Mlp(nn.Module): ...",
            "user/data.py": "class Images:\n    def __init__(self, size: int = 3): ...",
        }
    )

    def run(*stages: Any, **sections: Any) -> Any:
        plain = {
            "task": {"type": "user.task.Shapes"},
            "model": {"type": "user.model.Mlp"},
            "optim": {"type": "AdamW", "lr": 1e-3},
            "stages": list(stages),
            **sections,
        }
        return check(load(plain), Registry(Project(folder, (), "p")))

    return run


def test_stages_may_change_everything(staged) -> None:
    report = staged(
        {"name": "warm", "for": "5ep", "freeze": ["body.*"]},
        {
            "for": "500st",
            "until": "val/acc >= 0.9",
            "optim": {"lr": 1e-4, "betas": [0.5, 0.9], "clip": 1.0, "accumulate": 2},
            "schedule": {"type": "linear", "warmup": 10},
            "unfreeze": ["body"],
            "task": {"mix": 0.5},
        },
        {
            "until": {"plateau": 3},
            "optim": {"type": "SGD", "lr": 0.1, "state": "reset"},
            "data": {"training": {"type": "user.data.Images", "batch_size": 4}},
            "batch_size": 8,
        },
        monitor="+val/acc",
    )
    assert report.ok, str(report)


def test_a_stage_gets_only_the_defaults_of_new_components(staged) -> None:
    report = staged(
        {"for": "5ep", "optim": {"lr": 1e-4}, "schedule": "cosine"},
        {"for": "5ep", "optim": {"type": "SGD", "lr": 0.1}, "data": {"val": "user.data.Images"}},
    )
    first, second = (one.to_plain() for one in report.expanded.mapping["stages"].elements)
    assert first.keys() == {"for", "optim", "schedule"}
    assert first["optim"] == {"lr": 1e-4}
    assert first["schedule"]["type"] == "cosine"
    assert first["schedule"]["warmup"] == 0
    assert second["optim"]["momentum"] == 0
    assert "clip" not in second["optim"]
    assert second["data"]["val"]["size"] == 3
    keys = {one.key for one in report.defaults}
    assert "stages.1.optim.momentum" in keys
    assert not keys & {"stages.1.optim.clip", "stages.0.optim.betas", "stages.0.name", "train.for"}


def test_the_expanded_config_can_be_checked_again(staged) -> None:
    stages = (
        {"for": "5ep", "optim": {"lr": 1e-4}, "schedule": "cosine"},
        {"for": "5ep", "optim": {"type": "SGD", "lr": 0.1}},
    )
    expanded = staged(*stages).expanded.to_plain()
    again = staged(**expanded)
    assert again.ok, str(again)
    assert again.expanded.to_plain() == expanded


def test_mistakes_are_reported_with_their_key(staged) -> None:
    for stage, key, what, hint in (
        ({}, "", "the stage has no end, so the next one would never start", "add for: 5ep"),
        ({"for": "0ep"}, ".for", "must be more than zero, got 0ep", "write 10ep"),
        ({"for": 3}, ".for", "expected a duration", "write 3ep for epochs or 3st for steps"),
        ({"until": "acc"}, ".until", "expected a condition, got 'acc'", "write 'val/acc >= 0.95'"),
        ({"until": "val/acx >= 1"}, ".until", "nothing produces the metric", "'val/acc >= 1'"),
        ({"until": "test/acc >= 1"}, ".until", "nothing evaluates 'test'", "train.eval_every"),
        ({"until": {"plateau": 3}}, ".until", "a plateau needs a monitor", "add moni"),
        ({"until": {}}, ".until", "is empty", "write until: {plateau: 3}"),
        ({"until": {"flat": 3}}, ".until.flat", "unknown key 'flat'", "write until: {plateau: 3}"),
        ({"freez": ["a"]}, ".freez", "unknown key 'freez' of section 'stages'", "'freeze'"),
        ({"freeze": "a"}, ".freeze", "expected a list", "write [a]"),
        ({"batch_size": 0}, ".batch_size", "must be at least 1, got 0", "at least 1"),
        ({"optim": 3}, ".optim", "expected a mapping, got 3", "write optim: {lr: 1e-4}"),
        ({"optim": {"lrr": 1}}, ".optim.lrr", "unknown argument 'lrr' of torch.optim", "'lr'"),
        ({"optim": {"lr": "x"}}, ".optim.lr", "expected a number", ""),
        ({"optim": {"lr": -1}}, ".optim.lr", "must be at least 0, got -1", "positive"),
        ({"optim": {"momentum": 1}}, ".optim.momentum", "unknown argument 'momentum'", "known: "),
        ({"optim": {"state": "rest"}}, ".optim.state", "expected 'keep' or 'reset'", "'reset'"),
        (
            {"optim": {"freeze": ["a"]}},
            ".optim.freeze",
            "freeze is a key of the stage, not of optim",
            "freeze:",
        ),
        ({"optim": {"groups": [{"match": "a"}]}}, ".optim.groups.0", "changes nothing", "match"),
        ({"optim": "SDG"}, ".optim.type", "unknown optimizer 'SDG'", "'SGD'"),
        (
            {"optim": {"type": "SGD", "state": "keep"}},
            ".optim.state",
            "SGD cannot use the state of AdamW",
            "write state: reset",
        ),
        ({"schedule": "cosin"}, ".schedule.type", "unknown schedule 'cosin'", "'cosine'"),
        ({"schedule": {"type": "cosine", "x": 1}}, ".schedule.x", "unknown argument 'x'", "known"),
        ({"data": {"train": {"batch_size": 3}}}, ".data.train", "the data has no type", "add type"),
        ({"data": {"trian": "user.data.Images"}}, ".data.trian", "unknown split", "'train'"),
        ({"data": []}, ".data", "expected a mapping of splits", "write data"),
        ({"loss": {"aux": 1}}, ".loss", "there is no section loss", "task"),
        ({"task": {"mixx": 1}}, ".task.mixx", "unknown key 'mixx' of user.task.Shapes", "'mix'"),
        ({"task": {"mix": "a"}}, ".task.mix", "expected a number, got 'a'", ""),
        ({"task": 5}, ".task", "expected a mapping, got 5", "write task: {mix: 0.5}"),
    ):
        has_end = not stage or stage.keys() & {"for", "until"}
        written = stage if has_end else {"for": "1ep", **stage}
        found = problems_of(staged(written, {"name": "last", "for": "1ep"}))
        assert len(found) == 1, found
        assert found[0][0] == f"stages.0{key}"
        assert what in found[0][1]
        assert hint in found[0][2]


def test_mistakes_are_reported_with_their_place(staged, tmp_path) -> None:
    path = tmp_path / "c.yaml"
    text = """
        task: {type: user.task.Shapes}
        model: {type: user.model.Mlp}
        optim: {type: AdamW}
        stages:
          - {for: 3ep}
          - for: 3ep
            optim: {lrr: 1}
    """
    path.write_text(text)
    (problem,) = check(load(path)).problems
    assert (problem.place.line, problem.place.column) == (8, 21)


def test_a_plateau_needs_a_positive_length(staged) -> None:
    (found,) = problems_of(staged({"until": {"plateau": 0}}, monitor="+val/acc"))
    assert found == ("stages.0.until.plateau", "must be at least 1, got 0", "write 1 or more")


def test_stages_are_a_list(staged) -> None:
    for written in ({}, "5ep", [], 3):
        (found,) = problems_of(staged(stages=written))
        assert found[0] == "stages", written
        assert "expected a list of stages" in found[1], written


def test_a_stage_must_be_a_mapping(staged) -> None:
    (found,) = problems_of(staged("5ep", {"for": "1ep"}))
    assert found == ("stages.0", "expected a mapping, got '5ep'", "write {for: 5ep}")


def test_two_stages_of_one_name_are_reported(staged) -> None:
    (found,) = problems_of(staged({"name": "stage2", "for": "1ep"}, {"for": "1ep"}))
    assert found[:2] == ("stages.1.name", "two stages are called 'stage2'")


def test_the_keys_of_a_stage_are_those_of_its_optimizer(staged) -> None:
    stages = (
        {"for": "1ep", "optim": {"type": "SGD", "lr": 0.1}},
        {"for": "1ep", "optim": {"momentum": 0.9}},
        {"for": "1ep", "optim": {"betas": [0.5, 0.5]}},
    )
    (found,) = problems_of(staged(*stages))
    assert found[:2] == (
        "stages.2.optim.betas",
        "unknown argument 'betas' of torch.optim.sgd.SGD",
    )


def test_a_scheduler_of_torch_cannot_continue_with_another_optimizer(staged) -> None:
    for stages, index, what in (
        (
            [{"optim": {"lr": 0.1}}],
            0,
            "StepLR, the run's schedule from torch, cannot continue after",
        ),
        ([{}, {"optim": {"state": "reset"}}], 1, "cannot continue with another optimizer"),
        ([{"schedule": "cosine"}, {}], 1, "after a stage with its own schedule"),
    ):
        schedule = {"type": "StepLR", "step_size": 3}
        given = [{"for": "1ep", **one} for one in stages]
        (found,) = problems_of(staged(*given, schedule=schedule))
        assert found[0] == f"stages.{index}"
        assert what in found[1]


def test_a_scheduler_of_torch_continues_after_other_changes(staged) -> None:
    schedule = {"type": "StepLR", "step_size": 3}
    stages = {"for": "1ep"}, {"for": "1ep", "optim": {"weight_decay": 0.1}, "freeze": ["a"]}
    assert staged(*stages, schedule=schedule).ok


def test_the_task_keys_of_a_stage_follow_on_stage_start(staged) -> None:
    for task, stages, found in (
        ("Needing", [{}, {}], ["stages.0.task.mix"]),
        ("Needing", [{"task": {"mix": 1.0}}, {}], []),
        ("Open", [{"task": {"whatever": [1]}}], []),
        ("Deaf", [{"task": {"mix": 1}}], ["stages.0.task"]),
        ("Deaf", [{}], []),
    ):
        given = [{"for": "1ep", **one} for one in stages]
        report = staged(*given, task={"type": f"user.task.{task}"})
        assert [problem.key for problem in report.problems] == found


def test_loss_weights_of_a_stage_name_existing_terms(staged) -> None:
    terms = {"near": {"type": "l1"}, "far": {"type": "mse", "weight": 0}}
    given = {"task": {"type": "user.task.Lossless"}, "loss": terms}
    assert staged({"for": "1ep", "loss": {"far": 0.5}}, **given).ok
    (found,) = problems_of(staged({"for": "1ep", "loss": {"fat": 0.5}}, **given))
    assert found == ("stages.0.loss.fat", "the loss has no term 'fat'", "did you mean 'far'?")
    (found,) = problems_of(staged({"for": "1ep", "loss": {"far": "x"}}, **given))
    assert found[0] == "stages.0.loss.far"
    (found,) = problems_of(staged({"for": "1ep", "loss": 3}, **given))
    assert found[0] == "stages.0.loss"


def test_the_length_of_the_training_is_the_sum_of_the_stages(staged) -> None:
    stages = {"for": "2ep"}, {"for": "3ep"}
    assert "for" not in staged(*stages).expanded.find("train").mapping
    assert staged(*stages, train={"for": "5ep"}).ok
    (found,) = problems_of(staged(*stages, train={"for": "6ep"}))
    assert found[:2] == ("train.for", "'6ep' is not the sum of the stages, 5ep")
    (found,) = problems_of(staged({"for": "2ep"}, {"for": "3st"}, train={"for": "6ep"}))
    assert found[1] == "'6ep' is not the sum of the stages"


def test_a_length_on_the_command_line_applies_to_each_stage(staged, tmp_path) -> None:
    plain = {
        "task": {"type": "user.task.Shapes"},
        "model": {"type": "user.model.Mlp"},
        "optim": {"type": "AdamW"},
        "stages": [{"for": "50ep"}, {"until": "val/acc >= 0.9"}],
    }
    report = check(load(plain, overrides=["train.for=1ep"]), Registry(Project(tmp_path, (), "p")))
    assert report.ok, str(report)
    stages = report.expanded.mapping["stages"].to_plain()
    assert [one["for"] for one in stages] == ["1ep", "1ep"]
    assert report.expanded.find("train.for") is None


def test_a_stage_without_a_name_is_named_by_its_number() -> None:
    assert stage_name(1, from_plain({})) == "stage2"
    assert stage_name(1, from_plain({"name": "late"})) == "late"


def test_a_section_assembled_by_code_is_expanded_and_checked(tmp_path) -> None:
    registry = Registry(Project(tmp_path, (), "p"))
    expanded = expand_optimizer(from_plain({"type": "SGD", "lr": 0.1}), registry)
    assert expanded.find("momentum").value == 0
    several = expand_optimizer(from_plain(SEVERAL), registry).to_plain()
    assert (several["one"]["momentum"], several["two"]["every"], several["accumulate"]) == (0, 1, 1)
    for wrong, message in (
        ({"type": "SGD", "lrr": 0.1}, "unknown argument 'lrr'"),
        ({"type": "SGD", "lr": -1}, r"optim\.lr: must be at least 0"),
        ({**SEVERAL, "two": {"type": "AdamW", "lr": -1}}, r"optim\.two\.lr: must be at least 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            expand_optimizer(from_plain(wrong), registry)


def test_each_of_several_optimizers_may_change(staged) -> None:
    for change in (
        {"one": {"lr": 0.2, "momentum": 0.5}, "accumulate": 2},
        {"one": {"type": "AdamW", "betas": [0.8, 0.9], "state": "reset"}},
        {"two": {"every": 2, "clip": 1.0, "loss": "other"}},
    ):
        assert staged({"for": "1ep", "freeze": ["a"], "optim": change}, optim=SEVERAL).ok


def test_a_wrong_change_of_one_of_several_optimizers_is_reported(staged) -> None:
    for change, found in (
        ({"lr": 0.1}, ("lr", "'lr' must be set for one of several optimizers")),
        ({"clip": 0.1}, ("clip", "'clip' must be set for one of several optimizers")),
        ({"tow": {"lr": 1}}, ("tow", "there is no optimizer 'tow'", "did you mean 'two'?")),
        ({"one": 3}, ("one", "expected a mapping, got 3")),
        ({"one": {"momentun": 3}}, ("one.momentun", "unknown argument 'momentun' of torch")),
        ({"one": {"match": "b"}}, ("one.match", "'match' of one of several optimizers cannot")),
        ({"one": {"schedule": "linear"}}, ("one.schedule", "'schedule' of one of several")),
        ({"one": {"freeze": ["b"]}}, ("one.freeze", "freeze is a key of the stage, not of optim")),
        ({"one": {"lr": -1}}, ("one.lr", "must")),
        (
            {"one": {"type": "AdamW", "state": "keep"}},
            ("one.state", "AdamW cannot use the state of SGD"),
        ),
    ):
        (mistake,) = problems_of(staged({"for": "1ep", "optim": change}, optim=SEVERAL))
        assert mistake[0] == f"stages.0.optim.{found[0]}"
        assert mistake[1].startswith(found[1])
        assert mistake[2:] == found[2:] or len(found) == 2


def test_a_scheduler_of_torch_cannot_continue_if_its_optimizer_changes(staged) -> None:
    schedule = {"type": "torch.optim.lr_scheduler.ExponentialLR", "gamma": 0.9}
    optim = {**SEVERAL, "one": {**SEVERAL["one"], "schedule": schedule}}
    assert staged({"for": "1ep"}, {"for": "1ep", "optim": {"two": {"lr": 1}}}, optim=optim).ok
    (found,) = problems_of(
        staged({"for": "1ep"}, {"for": "1ep", "optim": {"one": {"lr": 1}}}, optim=optim)
    )
    assert found[0] == "stages.1"
    assert found[1].endswith("cannot continue after a change of one.lr")
