"""The form that launches a config: components with their fields, and which changes it accepts."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from epochal.check import check
from epochal.check.export.launch_form import LaunchForm, build_form, check_changes, read_text
from epochal.config import load
from epochal.config.node import from_plain
from epochal.config.scalar import DELETE

MODELS = """
from torch import nn

class Mlp(nn.Module):
    '''Layers.

    Args:
        width: Units of each layer.
    '''

    def __init__(self, classes: int = 3, width: int = 64, act: nn.Module | None = None): ...

class Conv(nn.Module):
    '''Convolutions.'''

    def __init__(self, *, classes: int = 3, channels: int = 8): ...

class Block(nn.Module):
    def __init__(self, inner: nn.Module): ...
"""
CONFIG = """
task: {type: user.task.Shapes}
model: {type: user.model.Mlp, classes: 4, width: 32}
optim: {type: AdamW, lr: 0.001, weight_decay: 0.1}
train: {for: 2ep, until: train/loss <= 0.1}
extra: {note: hello}
log: {level: info}
monitor: +val/acc
hooks:
  - {type: EarlyStopping, patience: 3}
  - {type: JsonLines, on: [val]}
launch:
  expose: [model, optim, schedule, average, train.for, train.until, extra.note, log.level, hooks,
           checkpoint.name, train.eval_at_end, record.log_dir]
  roots: [runs, other]
"""


@pytest.fixture(scope="module")
def form(tmp_path_factory: pytest.TempPathFactory) -> LaunchForm:
    """The form of a config with models of its own."""
    from textwrap import dedent

    from epochal.registry import Project, Registry
    from unit.check.conftest import TASK

    folder = tmp_path_factory.mktemp("project")
    (folder / "user").mkdir()
    (folder / "user" / "task.py").write_text(dedent(TASK))
    (folder / "user" / "model.py").write_text(MODELS)
    (folder / "a.yaml").write_text(CONFIG)
    registry = Registry(Project(folder, (), "p"))
    report = check(load(folder / "a.yaml"), registry)
    assert report.problems == ()
    return build_form(report.expanded, registry)


def accept(form: LaunchForm, changes: dict[str, Any]) -> dict[str, Any]:
    values, problems = check_changes(form, changes)
    assert problems == [], changes
    return values


def test_components_are_offered_with_their_own_fields(form: LaunchForm) -> None:
    models = {one.name: one for one in form.choices["model"]}
    assert [*models] == ["Mlp", "Conv"], "a block needs another module"
    assert models["Conv"].doc == "Convolutions."
    shown = {one.key: one.node.value for one in models["Conv"].fields}
    assert shown == {"model.classes": 4, "model.channels": 8, "model.dtype": "float32"}
    assert models["Mlp"].fields[1].doc == "Units of each layer."
    optimizers = [one.name for one in form.choices["optim"]]
    assert optimizers[0] == "AdamW"
    assert {"SGD", "Adam", "RMSprop"} <= {*optimizers}
    hooks = {one.name for one in form.choices["hooks"]}
    assert {"EarlyStopping", "TensorBoard", "Mixup"} <= hooks
    assert "user.model" not in sys.modules


def test_a_component_that_changes_loses_arguments_that_it_does_not_have(form: LaunchForm) -> None:
    assert accept(form, {"model": "Conv", "model.channels": 16}) == {
        "model.type": "user.model.Conv", "model.width": "$delete", "model.channels": 16,
    }  # fmt: skip
    assert accept(form, {"model": "Mlp", "model.width": 32}) == {}
    assert accept(form, {"optim": "SGD", "optim.momentum": 0.9, "optim.lr": 0.001}) == {
        "optim.type": "SGD", "optim.momentum": 0.9,
    }  # fmt: skip


def test_a_component_that_the_config_lacks_is_added_and_removed(form: LaunchForm) -> None:
    assert "average: null" in form.to_text()
    assert accept(form, {"average": None}) == {}
    added = accept(form, {"average": "ema", "average.decay": 0.9})
    assert added == {"average.type": "ema", "average.decay": 0.9}
    (one,) = (one for one in form.fields if one.key == "average")
    assert one.is_nullable
    present = replace(one, node=from_plain({"type": "ema", "decay": 0.9}))
    full = replace(form, fields=(present,))
    assert accept(full, {"average": None}) == {"average": DELETE}
    _, problems = check_changes(form, {"optim": None})
    assert [one.key for one in problems] == ["optim"]


def test_hooks_are_a_list_that_keeps_what_the_form_does_not_show(form: LaunchForm) -> None:
    assert accept(form, {"hooks": [{"type": "JsonLines"}, {"type": "Mixup", "alpha": 0.4}]}) == {
        "hooks": [{"type": "JsonLines", "on": ["val"]}, {"type": "Mixup", "alpha": 0.4}]
    }
    same = [{"type": "EarlyStopping", "patience": 5}, {"type": "JsonLines"}]
    assert accept(form, {"hooks": same})["hooks"][0] == {"type": "EarlyStopping", "patience": 5}
    assert accept(form, {"hooks": []}) == {"hooks": []}


def test_values_of_all_types_are_accepted(form: LaunchForm) -> None:
    for key, value in {
        "train.for": "500st",
        "train.until": "val/acc >= 0.9",
        "extra.note": "a longer one, 100% (new)",
        "log.level": "debug",
        "checkpoint.name": "{tag}-{step}-{val/acc:.3f}",
        "train.eval_at_end": True,
        "record.log_dir": "other",
        "optim.weight_decay": 0,
    }.items():
        assert accept(form, {key: value}) == {key: value}
    assert accept(form, {"train.until": None}) == {"train.until": None}


def test_a_number_typed_into_a_text_field_is_a_number(form: LaunchForm) -> None:
    (warmup,) = (item for item in form.choices["schedule"][0].fields if item.key.endswith("warmup"))
    assert warmup.type == "text"
    name = form.choices["schedule"][0].name
    for typed, value in {"500": 500, "2ep": "2ep"}.items():
        found = accept(form, {"schedule": name, "schedule.warmup": typed})
        assert found["schedule.warmup"] == value
    assert accept(form, {"extra.note": "500"}) == {"extra.note": "500"}


KEYS = (
    "", "optim.lr.x", "model.type", "$BASE", "record", "record.exact", "--resume", "-c", "lr=1;id",
    "optim.lr=1\nx", "__class__", "PYTHONPATH", "LD_PRELOAD", "optim.lr ", "OPTIM.LR", "optim/lr",
    "../x", "imports", "imports.0", "--rdzv", "optim\u2010lr", "optim.lr\0", "a" * 5000, "seed",
    "train", "tag", "device", "hooks.0.type", "hooks.0", "env", "notify", "launch.setup",
    "variants", "experiment", "init_from", "runner", "model.channels", "optim.momentum",
)  # fmt: skip
VALUES = (
    "$(id)", "`id`", "; id", "| id", "\n", "\0", "${env:HOME}", "${optim.lr}", "$null", "$delete",
    "/etc/passwd", "~/x", "../x", "..", ".", "a/b", "C:\\x", "\\\\host\\x", "os.system",
    "user.model",
    "user.model.Mlp", "data.csv", "http://evil", "--debug", "-x", "!!python/object", "&a", "<b>",
    "\x1b[2J", "x" * 201, None, [], [1], {}, {"type": "SGD"}, [{"type": "SGD"}], True, 1, 0.5,
)  # fmt: skip
TARGETS = (
    "model", "optim", "optim.lr", "train.for", "log.level", "train.eval_at_end", "record.log_dir",
    "hooks",
)  # fmt: skip


def test_nothing_but_values_of_the_form_is_accepted(form: LaunchForm, record_property) -> None:
    good = {
        ("optim.lr", 0.5),
        ("optim.lr", 1),
        ("train.eval_at_end", True),
        ("extra.note", None),
    }
    cases = [{key: value} for key in KEYS for value in (1, True, "x", None)]
    cases += [
        {key: value}
        for key in (*TARGETS, "extra.note", "checkpoint.name")
        for value in VALUES
        if not (isinstance(value, str | int | float) and (key, value) in good)
        and not (key == "hooks" and value == [])
        and not (key in ("extra.note", "checkpoint.name") and value == ".")
    ]
    cases += [
        {"hooks": [{"type": name}]} for name in ("os.system", "Nothing", "", None, 1, "user.task")
    ]
    cases += [
        {"hooks": [{"type": "EarlyStopping", key: value}]}
        for key, value in [("patience", "3"), ("monitor", "x"), ("type_", 1), ("on", ["val"])]
    ]
    cases += [{"hooks": [{"type": "EarlyStopping"}] * 51}, {"optim.lr": float("inf")}]
    for case in cases:
        values, problems = check_changes(form, case)
        assert problems, case
        assert not any("env:" in str(value) or "/" in str(value) for value in values.values()), case
    record_property("counted", f"{len(cases)} hostile changes refused")


def test_text_of_the_form_is_read_and_written(form: LaunchForm) -> None:
    changes, _, problems = read_text(form.to_text(), form)
    assert problems == []
    assert accept(form, changes) == {}
    text = "optim:\n  type: SGD\n  momentum: 0.5\ntrain.for: 3ep\nhooks: []\n"
    changes, _, problems = read_text(text, form)
    assert problems == []
    assert accept(form, changes) == {
        "optim.type": "SGD", "optim.momentum": 0.5, "train.for": "3ep", "hooks": [],
    }  # fmt: skip


def test_mistakes_of_a_text_have_their_line(form: LaunchForm) -> None:
    for text, line, what in [
        ("optim:\n  lr: x\n", 2, "is not a number"),
        ("optim:\n  lr: 0.1\n  width: 3\n", 3, "the form has no such key"),
        ("hooks:\n  - type: EarlyStopping\n    patience: a\n", 3, "is not a number"),
        ("model:\n  type: os.system\n", 2, "the form does not offer this"),
        ("train:\n  for: soon\n", 2, "expected a duration, got 'soon'"),
        ("imports: [os]\n", 1, "the form has no such key"),
        ("$BASE: other.yaml\n", 1, "the form has no such key"),
        ("extra:\n  note: ${env:HOME}\n", 2, "has characters that a form does not accept"),
        ("optim: {lr: [\n", 2, ""),
        ("- 1\n", 1, "expected lines `key: value`"),
        ("a: !!python/object:os.system x\n", 1, ""),
    ]:
        changes, written, problems = read_text(text, form)
        problems = problems or check_changes(form, changes, written)[1]
        assert problems, text
        assert problems[0].place is not None, text
        assert problems[0].place.line == line, (text, problems)
        assert what in problems[0].what, (text, problems)
