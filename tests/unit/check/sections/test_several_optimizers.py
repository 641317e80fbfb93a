"""Tests of several optimizers in place of one."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.unit.check.problems import problems_of

from epochal.check import SECTIONS, has_members, json_schema, member_signature
from epochal.config import from_plain

TWO: dict[str, Any] = {
    "generator": {"type": "Adam", "lr": 1e-3, "match": "generator", "loss": "g_loss"},
    "critic": {"type": "SGD", "lr": 0.1, "loss": "d_loss", "every": 2},
}


LOSSES = """
def batch_loss(self, out, batch):
    return {"g_loss": (1, 1), "d_loss": (2, 1)}
"""


@pytest.fixture
def check_dict(check_task):
    """Check a config whose task computes both losses."""
    return partial(check_task, LOSSES)


def changed(**members: dict[str, Any]) -> dict[str, Any]:
    return {name: {**TWO.get(name, {}), **keys} for name, keys in {**TWO, **members}.items()}


def test_each_of_several_optimizers_is_expanded(check_dict) -> None:
    report = check_dict(optim={**TWO, "accumulate": 2})
    assert report.ok, str(report)
    optim = report.expanded.find("optim").to_plain()
    assert list(optim)[-2:] == ["generator", "critic"]
    assert "clip" not in optim
    assert (optim["accumulate"], optim["generator"]["every"]) == (2, 1)
    assert (optim["critic"]["match"], optim["critic"]["momentum"]) == ([], 0)


def test_an_expanded_section_can_be_checked_again(check_dict) -> None:
    expanded = check_dict(optim=TWO).expanded.find("optim").to_plain()
    report = check_dict(optim=expanded)
    assert report.ok, str(report)
    assert report.expanded.find("optim").to_plain() == expanded


def test_each_may_have_a_schedule(check_dict) -> None:
    report = check_dict(optim=changed(critic={"schedule": {"type": "cosine"}}))
    assert report.ok, str(report)
    schedule = report.expanded.find("optim.critic.schedule").to_plain()
    assert (schedule["type"], schedule["unit"]) == ("cosine", "step")
    assert check_dict(optim=changed(critic={"schedule": "linear"})).ok
    assert check_dict(optim=changed(critic={"schedule": None})).ok


def test_mistakes_are_reported(check_dict) -> None:
    for optim, key, what, hint in (
        (
            {**TWO, "clip": 1.0},
            "optim.clip",
            "'clip' must be set for each of several optimizers",
            "write it in each that needs clip",
        ),
        ({**TWO, "lr": 1}, "optim.lr", "unknown key 'lr' beside several optimizers", "write lr:"),
        ({**TWO, "accumulate": 0}, "optim.accumulate", "must be at least 1, got 0", ""),
        (changed(third={"lr": 1, "match": "x"}), "optim.third", "the optimizer has no type", ""),
        (
            changed(critic={"los": "x"}),
            "optim.critic.los",
            "unknown argument 'los' of torch.optim.sgd.SGD",
            "did you mean 'loss'?",
        ),
        (changed(critic={"every": 0}), "optim.critic.every", "must be at least 1, got 0", ""),
        (changed(critic={"lr": -1}), "optim.critic.lr", "must be at least 0, got -1", ""),
        (
            changed(critic={"groups": [{"lr": 1}]}),
            "optim.critic.groups.0",
            "the rule selects no parameters",
            "",
        ),
        (
            changed(critic={"schedule": {"type": "cosin"}}),
            "optim.critic.schedule.type",
            "unknown schedule 'cosin'",
            "did you mean 'cosine'?",
        ),
        (
            {**TWO, "third": {"type": "SGD", "lr": 1, "loss": "d_loss"}},
            "optim.third",
            "'third' and 'critic' both train the remaining parameters: only one may",
            'add match: "PATTERN"',
        ),
        (
            changed(generator={"every": 3}),
            "optim",
            "in some steps no optimizer acts",
            "set every: 1 for one of them",
        ),
        (
            {"a/b": TWO["generator"], "critic": TWO["critic"]},
            "optim.a/b",
            "'a/b' cannot be the name of an optimizer",
            "use letters",
        ),
    ):
        found = {one[0]: one for one in problems_of(check_dict(optim=optim))}
        assert list(found) == [key]
        assert found[key][1] == what
        assert found[key][2].startswith(hint)


def test_specs_by_name_differ_from_one_spec() -> None:
    for value, is_so in (
        (TWO, True),
        ({"type": "SGD", "lr": 1}, False),
        ({"lr": 1}, False),
        ({"clip": {"value": 1}}, False),
        ("SGD", False),
    ):
        assert has_members(SECTIONS["optim"], from_plain(value)) is is_so
        assert not has_members(SECTIONS["model"], from_plain(value))


def test_each_of_several_optimizers_has_its_own_keys(user_registry) -> None:
    signature = member_signature(SECTIONS["optim"], user_registry.finder)
    assert {"match", "loss", "every", "clip", "schedule"} <= {
        item.name for item in signature.parameters
    }


def test_the_schema_allows_several_optimizers(user_registry) -> None:
    section = json_schema(user_registry)["properties"]["optim"]
    several = section["then"]
    assert {"accumulate", "noise", "$BASE"} <= set(several["properties"])
    assert "clip" not in several["properties"]
    assert "match" in several["additionalProperties"]["else"]["properties"]


def test_losses_that_nothing_computes_are_reported(check_task) -> None:
    assert check_task(LOSSES, optim=TWO).ok
    wrong = changed(critic={"loss": "dd_loss"})
    assert problems_of(check_task(LOSSES, optim=wrong)) == [
        ("optim.critic.loss", "nothing computes the loss 'dd_loss'", "did you mean 'd_loss'?")
    ]
    missing = {"generator": TWO["generator"], "critic": {"type": "SGD", "lr": 1}}
    assert problems_of(check_task(LOSSES, optim=missing))[0][:2] == (
        "optim.critic.loss",
        "nothing computes the loss 'loss'",
    )


def test_losses_that_the_source_does_not_show_may_exist(check_task) -> None:
    hidden = "def batch_loss(self, out, batch):\n    return dict(out)"
    assert check_task(hidden, optim=TWO).ok


def test_the_sum_of_all_losses_can_be_monitored(check_task) -> None:
    assert check_task(LOSSES, optim=TWO, monitor="-train/loss").ok
    assert not check_task(LOSSES, monitor="-train/loss").ok
