"""Which keys of a config a launch form shows, and what ``launch.expose`` may name."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from epochal.check import check
from epochal.check.sections.form_fields import choose_fields, list_fields
from epochal.config import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONFIG = """
task: {type: user.task.Shapes}
model: {type: user.model.Mlp, classes: 3}
optim: {type: AdamW, lr: 0.001, betas: [0.9, 0.99]}
train: {for: 2ep}
monitor: +val/acc
record: {log_dir: runs}
extra: {note: hello, rounds: 3}
hooks: [{type: EarlyStopping, patience: 3}]
"""


@pytest.fixture
def fields_of(user_registry, tmp_path: Path) -> Callable[..., dict]:
    """The fields that a form shows, by key; more lines go below the config."""

    def read(text: str = "") -> dict:
        path = tmp_path / "a.yaml"
        path.write_text(CONFIG + dedent(text))
        report = check(load(path), user_registry)
        assert report.problems == ()
        fields = list_fields(report.expanded, user_registry)
        return {one.key: one for one in choose_fields(report.expanded, fields)}

    return read


def test_without_a_choice_a_form_shows_what_the_file_sets(fields_of) -> None:
    shown = ["seed", "extra.rounds", "model", "optim", "schedule", "train.for", "hooks"]
    assert [*fields_of()] == shown


def test_exposed_keys_are_shown_in_their_order(fields_of) -> None:
    shown = fields_of(
        """
        launch:
          expose: [train.for, optim.lr, "engine.num_*", hooks, checkpoint.name, extra.note, data*,
                   record.log_dir, model]
          roots: [runs, /data/runs]
        data: {train: {type: user.model.Mlp, classes: 2}}
        """
    )
    assert [*shown] == [
        "train.for", "optim.lr", "engine.num_threads", "hooks", "checkpoint.name", "extra.note",
        "data.train", "record.log_dir", "model",
    ]  # fmt: skip
    assert shown["record.log_dir"].choices == ("runs", "/data/runs")
    assert [one.type for one in shown.values()] == [
        "text", "number", "number", "list", "text", "text", "component", "choice", "component",
    ]  # fmt: skip


def test_fields_have_the_types_and_limits_of_the_schema(fields_of) -> None:
    shown = fields_of("launch: {expose: ['train.*', 'engine.*', 'optim.*', 'log.*']}")
    for key, kind, choices, least, is_nullable in [
        ("optim.lr", "number", (), None, False),
        ("train.for", "text", (), None, False),
        ("train.folds", "number", (), 2, True),
        ("train.sanity_batches", "number", (), 0, False),
        ("train.eval_at_end", "bool", (), None, False),
        ("train.eval_loss", "choice", (True, False, None), None, True),
        ("log.level", "choice", ("debug", "info", "warning", "error"), None, False),
    ]:
        one = shown[key]
        found = (one.type, one.find_limit("minimum"), one.is_nullable)
        assert found == (kind, least, is_nullable), key
        assert one.type != "choice" or {*one.choices} == {*choices}, key
    assert shown["train.folds"].is_integer
    assert shown["train.for"].doc.startswith("How long to train")
    assert "train.stratify" not in shown, "any text needs its whole key"


def test_keys_that_no_form_can_show_are_reported_at_their_place(
    user_registry, tmp_path: Path
) -> None:
    path = tmp_path / "a.yaml"
    for entry, what, hint in [
        ("optim.lrr", "there is no key 'optim.lrr'", "did you mean 'optim.lr'?"),
        ("nothing.*", "there is no key 'nothing.*'", ""),
        ("tag", "every form has a field for the name", "remove it"),
        ("record.log_dir", "'record.log_dir' needs folders to choose from", "add launch.roots"),
        ("record.exact", "'record.exact' cannot be shown in a form", "remove it, or"),
        ("imports", "'imports' cannot be shown in a form", "remove it, or"),
        ("launch.setup", "'launch.setup' cannot be shown in a form", "remove it, or"),
        ("model.type", "'model.type' cannot be shown in a form", "remove it, or"),
        ("init_from", "'init_from' cannot be shown in a form", "remove it, or"),
    ]:
        path.write_text(f"{CONFIG}launch:\n  expose:\n    - optim\n    - {entry!r}\n")
        (problem,) = check(load(path), user_registry).problems
        assert (problem.key, problem.what) == ("launch.expose.1", what), entry
        assert problem.hint.startswith(hint), entry
        assert problem.place is not None
        assert problem.place.line == 13, entry


def test_a_mistake_elsewhere_does_not_make_its_keys_unknown(user_registry, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(CONFIG.replace("AdamW", "Adamw9") + "launch: {expose: [optim.lr, model]}")
    assert [one.key for one in check(load(path), user_registry).problems] == ["optim.type"]


def test_secrets_from_the_environment_are_no_fields(
    user_registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTE", "hunter22")
    path = tmp_path / "a.yaml"
    path.write_text(CONFIG.replace("hello", "'${env:NOTE}'") + "env: [NOTE]\n")
    report = check(load(path), user_registry)
    assert report.expanded.get("extra.note").value == "hunter22"
    assert "extra.note" not in list_fields(report.expanded, user_registry)
