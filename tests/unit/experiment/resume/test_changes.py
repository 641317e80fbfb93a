"""Tests of what has changed since a run was recorded."""

from __future__ import annotations

import importlib
import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset, TensorDataset

import epochal as ep
from epochal.errors import ConfigError
from epochal.experiment.resume.changes import (
    changes_to_overrides,
    digest_code,
    digest_config,
    find_code_changes,
    find_config_changes,
    find_data_changes,
    fingerprint_data,
    refuse_changes,
)
from epochal.registry.project import Project

if TYPE_CHECKING:
    from pathlib import Path


CONFIG: dict[str, Any] = {
    "seed": 0,
    "optim": {"type": "SGD", "lr": 0.1},
    "train": {"for": "2ep"},
    "data": {"train": {"type": "Rows", "batch_size": 4, "workers": 0}},
    "hooks": [{"type": "shop.Mine"}],
}


def test_equal_configs_have_no_changes() -> None:
    assert find_config_changes(CONFIG, dict(CONFIG)) == []
    assert find_config_changes({"a": math.nan}, {"a": math.nan}) == []


def test_length_and_output_may_change() -> None:
    for section in (
        {"train": {"for": "3ep"}},
        {"train": {"for": "2ep", "max_time": "1h"}},
        {"log": {"level": "debug"}},
        {"record": {"log_dir": "elsewhere"}},
        {"checkpoint": {"every": "1ep"}},
        {"launch": {"on": "ray", "nodes": 1}},
        {"tag": "other"},
        {"init_from": None},
        {"data": {"train": {"type": "Rows", "batch_size": 4, "workers": 3}}},
        {"hooks": [{"type": "shop.Mine"}, {"type": "console", "every": "1st"}]},
    ):
        changes = find_config_changes(CONFIG, CONFIG | section)
        assert changes, section
        assert all(change.may_change for change in changes), section
        refuse_changes("run", changes)


def test_what_is_computed_may_not_change() -> None:
    table: list[tuple[dict[str, Any], str]] = [
        ({"seed": 1}, "seed: 0 -> 1"),
        ({"seed": False}, "seed: 0 -> False"),
        ({"optim": {"type": "SGD", "lr": 0.2}}, "optim.lr: 0.1 -> 0.2"),
        ({"optim": {"type": "SGD"}}, "optim.lr: 0.1 -> (nothing)"),
        ({"data": {"train": {"type": "Rows", "batch_size": 8, "workers": 0}}}, "data.train.batch"),
        ({"hooks": []}, "hooks: [{'type': 'shop.Mine'}] -> []"),
    ]
    for section, line in table:
        with pytest.raises(ConfigError) as caught:
            refuse_changes("runs/x", find_config_changes(CONFIG, CONFIG | section))
        assert str(caught.value).startswith("runs/x: cannot be resumed as the same run")
        assert f"\n    {line}" in str(caught.value)
        assert str(caught.value).endswith("or resume with them: --allow-changed")


def test_long_lists_and_values_are_cut_short() -> None:
    many = {f"key{index}": "x" * 100 for index in range(20)}
    with pytest.raises(ConfigError) as caught:
        refuse_changes("run", find_config_changes({}, many))
    assert "and 8 more" in str(caught.value)
    assert max(map(len, str(caught.value).splitlines())) < 120


def test_changes_become_overrides_that_turn_the_old_config_into_the_new_one() -> None:
    new = {"train": {"for": "3ep"}, "optim": {"type": "SGD"}}
    new = CONFIG | new | {"init_from": "w", "record": {"exact": 1}}
    overrides = changes_to_overrides(find_config_changes(CONFIG, new))
    assert overrides == ('optim.lr="$delete"', 'train.for="3ep"')


def rows(count: int = 40, *, seed: int = 0) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(count, 3, generator=generator), torch.arange(count))


def test_configs_have_a_digest() -> None:
    assert digest_config({"a": 1}) == digest_config({"a": 1})
    assert digest_config({"a": 1}) != digest_config({"a": 2})


def test_only_imported_files_of_the_project_have_digests(shop: Path) -> None:
    project = Project(shop)
    (shop / "shop" / "unused.py").write_text("raise RuntimeError\n")
    ep.Experiment("config.yaml", choices={"no_file": True, "fast": True}).run()
    code = digest_code(project)
    assert sorted(code) == ["shop/__init__.py", "shop/parts.py"]
    assert find_code_changes(code, project) == []


def test_changed_and_missing_files_are_named(shop: Path) -> None:
    project = Project(shop)
    ep.Experiment("config.yaml", choices={"no_file": True, "fast": True}).run()
    code = digest_code(project)
    (shop / "shop" / "parts.py").write_text("# other\n")
    (shop / "shop" / "__init__.py").unlink()
    changes = find_code_changes(code, project)
    assert [change.key for change in changes] == ["code shop/__init__.py", "code shop/parts.py"]
    assert changes[0].after == "(no such file)"
    assert not any(change.may_change for change in changes)


def test_environments_inside_the_project_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "hidden_module.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / ".venv"))
    importlib.import_module("hidden_module")
    assert digest_code(Project(tmp_path)) == {}


def test_an_environment_is_left_out_only_inside_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project" / "code"
    folder.mkdir(parents=True)
    (folder / "placed.py").touch()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "placed", raising=False)
    importlib.import_module("placed")
    placed = ["code/placed.py"]
    for prefix, names in ((".", placed), ("project/code", []), ("other", placed)):
        monkeypatch.setattr(sys, "prefix", str(tmp_path / prefix))
        assert list(digest_code(Project(tmp_path / "project"))) == names, prefix


def test_data_in_memory_is_compared_by_length_and_some_rows() -> None:
    facts = fingerprint_data(DataLoader(rows(), batch_size=4, shuffle=True))
    assert facts == fingerprint_data(DataLoader(rows(), batch_size=8))
    assert (facts["type"], facts["length"]) == ("TensorDataset", 40)
    other = fingerprint_data(DataLoader(rows(seed=1)))
    assert [change.key for change in find_data_changes(facts, other)] == ["training data, content"]
    shorter = fingerprint_data(DataLoader(rows(39)))
    assert "training data, length: 40 -> 39" in map(str, find_data_changes(facts, shorter))


def test_wrapped_datasets_are_compared_too() -> None:
    wrappers: list[Any] = [
        lambda data: Subset(data, range(3)),
        lambda data: ConcatDataset([data, data]),
        lambda data: ep.data.Tensors(x=data.tensors[0]),
    ]
    for wrap in wrappers:
        facts = fingerprint_data(DataLoader(wrap(rows())))
        assert "content" in facts
        assert find_data_changes(facts, fingerprint_data(DataLoader(wrap(rows(seed=1)))))
        assert not find_data_changes(facts, fingerprint_data(DataLoader(wrap(rows()))))
    loaders = (DataLoader(Subset(rows(), one)) for one in ([0, 1], [0, 2]))
    first, second = map(fingerprint_data, loaders)
    assert find_data_changes(first, second)


def test_datasets_are_not_read() -> None:
    class Shy(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self):
            raise AssertionError

        def __len__(self):
            raise TypeError

    assert fingerprint_data(DataLoader(Shy(), batch_size=None)) == {"type": "Shy"}
    assert fingerprint_data(None) == {"type": "NoneType"}
    assert fingerprint_data([1, 2])["length"] == 2


def test_arrays_without_rows_are_accepted() -> None:
    class Odd:
        tensors = (np.zeros((2, 0)), torch.zeros(0), torch.tensor(1.0))

    assert "content" in fingerprint_data(Odd())


def test_defaults_of_an_older_version_may_become_those_of_now() -> None:
    before = {"train": {"eval_every": "1ep", "eval_loss": False}}
    now = {"train": {"eval_every": "auto", "eval_loss": None}}
    assert [change.may_change for change in find_config_changes(before, now)] == [True, True]
    other = {"train": {"eval_every": "2ep", "eval_loss": True}}
    assert [change.may_change for change in find_config_changes(other, now)] == [False, False]
