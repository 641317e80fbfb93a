"""Tests of what an experiment is given from Python."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import epochal as ep
from epochal.config import parse_duration
from epochal.engine.interfaces.every import Every
from epochal.errors import ConfigError
from epochal.experiment.config.inputs import ExperimentInputs, check_given_part, load_inputs
from epochal.experiment.config.script_arguments import to_args
from epochal.testing import TinyModel, TinyTask


def read(source: object = None, **sections: object) -> ExperimentInputs:
    return load_inputs(source, (), {}, sections)


def test_plain_values_go_into_the_config() -> None:
    inputs = read(tag="a", optim={"type": "SGD", "lr": 0.1})
    assert inputs.config.root.to_plain() == {"tag": "a", "optim": {"type": "SGD", "lr": 0.1}}
    assert inputs.given.parts == {}


def test_ready_objects_are_kept_as_they_are() -> None:
    task, model = TinyTask(), TinyModel()
    inputs = read(task=task, model=model)
    assert inputs.given.parts == {"task": task, "model": model}
    assert "task" not in inputs.config.root.to_plain()


def test_hooks_and_metrics_may_mix_objects_and_specs() -> None:
    hook = ep.Hook()
    inputs = read(hooks=[hook, {"type": "EarlyStopping", "patience": 1}])
    assert inputs.given.hooks == (hook,)
    assert inputs.config.root.to_plain() == {"hooks": [{"type": "EarlyStopping", "patience": 1}]}


def test_durations_and_paths_are_written_as_users_type_them() -> None:
    inputs = read(
        train={"for": parse_duration("3ep"), "eval_every": Every.parse("2st")},
        record={"log_dir": Path("here")},
    )
    assert inputs.config.root.to_plain() == {
        "train": {"for": "3ep", "eval_every": "2st"},
        "record": {"log_dir": "here"},
    }


def test_sections_change_single_keys_of_a_file(shop: Path) -> None:
    config = read("config.yaml", optim={"lr": 9.0}).config.root.to_plain()
    assert config["optim"] == {"type": "SGD", "lr": 9.0, "momentum": 0.9}


def test_objects_in_sections_that_take_only_values_are_refused() -> None:
    with pytest.raises(ConfigError, match="seed: cannot be given as an object of type 'object'"):
        read(seed=object())
    with pytest.raises(ConfigError, match=r"(?s)cannot be given.*did you mean 'model'"):
        read(modle=TinyModel())


def test_args_without_an_origin_are_taken_by_value() -> None:
    assert read(to_args({"tag": "x", "optim": {"lr": 1}})).config.root.to_plain() == {
        "tag": "x",
        "optim": {"lr": 1},
    }


def test_args_of_the_command_line_keep_file_overrides_and_choices(shop: Path) -> None:
    args = ep.parse_args(["-c", "config.yaml", "--optim.lr=7", "--test", "--no-file"])
    inputs = read(args)
    assert inputs.is_test
    assert inputs.choices["no_file"]
    assert inputs.config.root.to_plain()["optim"]["lr"] == 7
    assert inputs.config.path == Path("config.yaml")


def test_plain_argparse_namespace_is_a_config() -> None:
    namespace = argparse.Namespace(tag="n", seed=3)
    assert read(namespace).config.root.to_plain() == {"tag": "n", "seed": 3}


def test_other_choices_load_the_config_again(shop: Path) -> None:
    inputs = read("config.yaml").with_choices({"epochs": 9})
    assert inputs.config.root.to_plain()["train"]["for"] == "9ep"


def test_user_dir_becomes_a_path() -> None:
    assert load_inputs({}, (), {"user_dir": "x"}, {}).user_dir == Path("x")
    assert read().user_dir is None


def test_numbers_that_json_lacks_stay_numbers(shop: Path) -> None:
    extra = {"top": float("inf"), "bottom": [float("-inf")]}
    assert read("config.yaml", extra=extra).config.root.to_plain()["extra"] == extra


ROWS = TensorDataset(torch.zeros(4, 2))


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"model": TinyModel}, "model: is the class 'TinyModel'", "model=TinyModel(...)"),
    ({"task": TinyTask}, "task: is the class 'TinyTask'", "task=TinyTask(...)"),
    (
        {"optim": torch.optim.AdamW},
        "optim: is the class 'AdamW'",
        "optim=AdamW(model.parameters(), lr=1e-3), or optim={'type': 'AdamW', 'lr': 1e-3}",
    ),
    (
        {"optim": [torch.optim.SGD([torch.zeros(1)])]},
        "optim: is no optimizer, but an object of type 'list'",
        "optim={'a': {'type': 'Adam', 'match': 'a', 'loss': 'a_loss'}, 'b': {...}}",
    ),
    (
        {"optim": {"a": torch.optim.SGD([torch.zeros(1)])}},
        "optim: is no optimizer, but an object of type 'dict'",
        "describe several by name",
    ),
    ({"hooks": [ep.Hook]}, "hooks: is the class 'Hook'", "hooks=[Hook()]"),
    ({"model": object()}, "model: is not a torch.nn.Module", "extends torch.nn.Module"),
    ({"data": ROWS}, "data: is not a mapping of splits", "data={'train': DataLoader("),
    ({"data": DataLoader(ROWS)}, "data: is not a mapping of splits", "data={'train': loader}"),
    (
        {"data": {"dev": ROWS}},
        "data.dev: is the dataset 'TensorDataset'",
        "{'dev': DataLoader(",
    ),
    (
        {"data": {"val": {"a": ROWS}}},
        "data.val: is the dataset 'TensorDataset'",
        "DataLoader(dataset, batch_size=32)",
    ),
]


def test_objects_that_cannot_be_parts_are_refused_with_what_to_write() -> None:
    for sections, what, hint in REFUSED:
        with pytest.raises(ConfigError) as caught:
            ep.Experiment(**sections)
        assert what in str(caught.value)
        assert hint in str(caught.value)


def test_ready_parts_pass() -> None:
    check_given_part("model", TinyModel())
    check_given_part("data", {"train": DataLoader(ROWS), "val": {"a": [1, 2]}})


def test_results_of_prepare_methods_are_checked_too(capsys: pytest.CaptureFixture[str]) -> None:
    for made, message in (
        (None, "prepare_model: gave nothing"),
        (TinyModel, "prepare_model: is the class"),
    ):
        kind = type("Own", (ep.Experiment,), {"prepare_model": lambda args, made=made: made})
        own = kind(task=TinyTask(), optim={"type": "SGD"}, choices={"no_file": True})
        result = own.fit(raise_errors=False)
        assert result.exit_code == 78
        assert message in result.message
        assert message in capsys.readouterr().err


def test_choices_given_as_sections_are_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigError) as caught:
        ep.Experiment(task=TinyTask(), no_file=True)
    assert str(caught.value) == (
        "no_file: is a choice for a run, not a section of the config\n"
        "  write choices={'no_file': True}"
    )
