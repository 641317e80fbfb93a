"""Tests of what is wrong in ``optim`` beyond types."""

from __future__ import annotations

from typing import Any

from tests.unit.check.problems import problems_of

from epochal.check import check
from epochal.config import load

AUTO: dict[str, Any] = {"type": "AdamW", "lr": 1e-3, "no_decay": "auto", "layer_decay": 0.75}


def check_rule(check_dict, **rule: Any) -> list[tuple[str, str, str]]:
    return problems_of(check_dict(optim={"type": "AdamW", "groups": [rule]}))


def test_rules_may_name_any_option_of_the_optimizer(check_dict) -> None:
    rules = [
        {"match": "*.bias", "weight_decay": 0},
        {"match": ["a", "b.*"], "module": "torch.nn.LayerNorm", "betas": [0.5, 0.9]},
        {"module": ["LayerNorm", "Linear"], "lr_mult": 10, "name": "top"},
        {"match": "encoder", "freeze": True},
    ]
    report = check_dict(optim={**AUTO, "groups": rules, "freeze": ["stem"]})
    assert report.ok, str(report)
    assert report.expanded.find("optim.groups").to_plain() == rules


def test_mistakes_in_a_rule_are_reported(check_dict) -> None:
    for rule, key, what, hint in (
        ({"weight_decay": 0}, "", "the rule selects no parameters", "add match: PATTERN"),
        ({"match": "*.bias"}, "", "the rule changes nothing", "write for example {match:"),
        (
            {"match": "a", "wieght_decay": 0},
            ".wieght_decay",
            "unknown key 'wieght_decay' of a rule",
            "did you mean 'weight_decay'?",
        ),
        (
            {"modul": "LayerNorm", "weight_decay": 0},
            ".modul",
            "unknown key 'modul' of a rule",
            "did you mean 'module'?",
        ),
        (
            {"match": "a", "lr": 1, "lr_mult": 2},
            ".lr_mult",
            "a rule has lr or lr_mult, not both",
            "lr_mult is a factor of optim.lr; remove one of them",
        ),
        ({"match": "a", "lr": -1}, ".lr", "must be at least 0, got -1", "write a positive"),
        ({"match": "a", "lr_mult": -0.5}, ".lr_mult", "must be at least 0, got -0.5", ""),
        ({"match": "a", "weight_decay": -1}, ".weight_decay", "must be at least 0", ""),
        ({"match": "a", "lr": "fast"}, ".lr", "expected a number, got 'fast' (argument 'lr'", ""),
        ({"match": 3, "lr": 1}, ".match", "expected text or a list (each text), got 3", "quote"),
        ({"module": True, "lr": 1}, ".module", "expected text or a list (each text)", ""),
        ({"match": "a", "freeze": "yes"}, ".freeze", "expected true or false, got 'yes'", ""),
        (
            {"match": "a", "fused": True},
            ".fused",
            "'fused' applies to the whole optimizer, not to a group",
            "write it in optim itself",
        ),
        (
            {"match": "a", "lr": 1, "name": "a/b"},
            ".name",
            "'a/b' cannot be the name of a group",
            "use letters, digits",
        ),
    ):
        (found,) = check_rule(check_dict, **rule)
        assert found[0] == f"optim.groups.0{key}"
        assert found[1].startswith(what)
        assert found[2].startswith(hint)


CONFIG = """\
task: {type: user.task.Shapes}
model: {type: user.model.Mlp, classes: 3}
optim:
  type: SGD
  lr: -1
  groups:
    - {match: a, lr: 1, name: x}
    - {match: b, lr: 2, name: x}
    - {match: c, momentun: 0}
"""


def test_all_mistakes_of_all_rules_are_reported_with_their_places(
    write_files, user_registry
) -> None:
    folder = write_files({"c.yaml": CONFIG})
    report = check(load(folder / "c.yaml"), user_registry)
    found = {problem.key: problem.place.line for problem in report.problems if problem.place}
    assert found == {"optim.lr": 5, "optim.groups.1.name": 8, "optim.groups.2.momentun": 9}


def test_an_entry_that_is_no_rule_is_reported_at_its_place(write_files, user_registry) -> None:
    rules = "  groups:\n    - {match: lin*, lr: 1.0}\n    - bias\n"
    text = CONFIG.partition("  groups:")[0] + rules
    folder = write_files({"c.yaml": text})
    report = check(load(folder / "c.yaml"), user_registry)
    places = {problem.key: problem.place for problem in report.problems}
    assert places["optim.groups"].text.strip() == "- bias"


def test_an_entry_that_is_no_rule_is_reported(check_dict) -> None:
    ((key, what, _),) = problems_of(check_dict(optim={"type": "SGD", "lr": 1, "groups": ["bias"]}))
    assert (key, what) == ("optim.groups", "expected a list (each a mapping), got ['bias']")


def test_options_for_all_parameters_are_checked(check_dict) -> None:
    for option, what in (
        ({"layer_decay": 0}, "must be above 0, got 0"),
        ({"layer_decay": 1.5}, "must be at most 1, got 1.5"),
        ({"no_decay": "all"}, "expected 'auto' or null, got 'all'"),
        ({"freeze": "stem"}, "expected a list (each text), got 'stem'"),
    ):
        ((key, found, _),) = problems_of(check_dict(optim={"type": "AdamW", **option}))
        assert (key, found) == (f"optim.{next(iter(option))}", what)


def test_no_decay_needs_an_optimizer_with_weight_decay(check_dict) -> None:
    found = problems_of(check_dict(optim={"type": "Rprop", "no_decay": "auto"}))
    assert found == [
        (
            "optim.no_decay",
            "needs 'weight_decay', which torch.optim.rprop.Rprop does not take",
            "remove no_decay",
        )
    ]
