"""Tests of what tells one config, one code and one data set from another."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset, TensorDataset

import epochal as ep
from epochal.experiment.resume.changes import (
    digest_code,
    digest_config,
    find_code_changes,
    find_data_changes,
    fingerprint_data,
)
from epochal.registry.project import Project

if TYPE_CHECKING:
    from pathlib import Path


def rows(count: int = 40, *, seed: int = 0) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(count, 3, generator=generator), torch.arange(count))


def test_configs_have_a_digest() -> None:
    assert digest_config({"a": 1}) == digest_config({"a": 1})
    assert digest_config({"a": 1}) != digest_config({"a": 2})


def test_imported_files_of_the_project_are_known_and_no_others(shop: Path) -> None:
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


def test_environments_inside_the_project_are_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "hidden_module.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / ".venv"))
    importlib.import_module("hidden_module")
    assert digest_code(Project(tmp_path)) == {}


@pytest.mark.parametrize(
    ("prefix", "names"),
    [(".", ["code/placed.py"]), ("project/code", []), ("other", ["code/placed.py"])],
)
def test_an_environment_counts_as_such_only_inside_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str, names: list[str]
) -> None:
    folder = tmp_path / "project" / "code"
    folder.mkdir(parents=True)
    (folder / "placed.py").touch()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "placed", raising=False)
    importlib.import_module("placed")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / prefix))
    assert list(digest_code(Project(tmp_path / "project"))) == names


def test_data_in_memory_is_known_by_its_length_and_some_rows() -> None:
    facts = fingerprint_data(DataLoader(rows(), batch_size=4, shuffle=True))
    assert facts == fingerprint_data(DataLoader(rows(), batch_size=8))
    assert (facts["type"], facts["length"]) == ("TensorDataset", 40)
    other = fingerprint_data(DataLoader(rows(seed=1)))
    assert [change.key for change in find_data_changes(facts, other)] == ["training data, content"]
    shorter = fingerprint_data(DataLoader(rows(39)))
    assert "training data, length: 40 -> 39" in map(str, find_data_changes(facts, shorter))


@pytest.mark.parametrize(
    "make",
    [
        lambda data: Subset(data, range(3)),
        lambda data: ConcatDataset([data, data]),
        lambda data: ep.data.Tensors(x=data.tensors[0]),
    ],
)
def test_data_below_others_counts_too(make: Any) -> None:
    facts = fingerprint_data(DataLoader(make(rows())))
    assert "content" in facts
    assert find_data_changes(facts, fingerprint_data(DataLoader(make(rows(seed=1)))))
    assert not find_data_changes(facts, fingerprint_data(DataLoader(make(rows()))))


def test_another_choice_of_the_same_rows_is_other_data() -> None:
    loaders = (DataLoader(Subset(rows(), one)) for one in ([0, 1], [0, 2]))
    first, second = map(fingerprint_data, loaders)
    assert find_data_changes(first, second)


def test_no_sample_is_read() -> None:
    class Shy(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self):
            raise AssertionError

        def __len__(self):
            raise TypeError

    assert fingerprint_data(DataLoader(Shy(), batch_size=None)) == {"type": "Shy"}
    assert fingerprint_data(None) == {"type": "NoneType"}
    assert fingerprint_data([1, 2])["length"] == 2


def test_arrays_without_rows_are_fine() -> None:
    class Odd:
        tensors = (np.zeros((2, 0)), torch.zeros(0), torch.tensor(1.0))

    assert "content" in fingerprint_data(Odd())
