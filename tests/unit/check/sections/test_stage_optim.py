"""Tests of what a stage may change of one optimizer, or of several."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.check.problems import problems_of

from epochal.check import check, expand_optimizer
from epochal.config import from_plain, load
from epochal.errors import ConfigError
from epochal.registry import Project, Registry

FILES = {
    "user/task.py": """
        import epochal as ep

        class Shapes(ep.Task):
            def batch_forward(self, model, batch): return {"out": model(batch)}
            def batch_loss(self, out, batch): return {"loss": (out["out"].mean(), 1)}
    """,
    "user/model.py": "from torch import nn\nclass Mlp(nn.Module): ...",
}
SEVERAL: dict[str, Any] = {
    "one": {"type": "SGD", "lr": 0.1, "match": "a"},
    "two": {"type": "AdamW"},
}


@pytest.fixture
def registry(write_files) -> Registry:
    return Registry(Project(write_files(FILES), (), "p"))


@pytest.fixture
def staged(registry) -> Any:
    """Checks a config with these stages."""

    def run(*stages: Any, optim: Any) -> Any:
        plain = {
            "task": {"type": "user.task.Shapes"},
            "model": {"type": "user.model.Mlp"},
            "optim": optim,
            "stages": list(stages),
        }
        return check(load(plain), registry)

    return run


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


def test_several_optimizers_assembled_by_code_are_expanded(registry) -> None:
    found = expand_optimizer(from_plain(SEVERAL), registry).to_plain()
    assert found["one"]["momentum"] == 0
    assert found["two"]["every"] == 1
    assert found["accumulate"] == 1


def test_mistakes_in_optimizers_assembled_by_code_are_raised(registry) -> None:
    wrong = {**SEVERAL, "two": {"type": "AdamW", "lr": -1}}
    with pytest.raises(ConfigError, match=r"optim\.two\.lr: must"):
        expand_optimizer(from_plain(wrong), registry)
