from __future__ import annotations

from epochal.check import SECTIONS
from epochal.check.sections.section_shapes import expand_section
from epochal.config import from_plain


def expand(checker, name: str, value: object):
    return expand_section(checker, SECTIONS[name], from_plain(value)).to_plain()


def test_lists_of_specs_are_expanded_one_by_one(checker) -> None:
    first, second = expand(checker, "hooks", [{"type": "EarlyStopping", "patience": 3}, "Console"])
    assert (first["patience"], first["every"]) == (3, None)
    assert second["type"] == "Console"
    assert list(checker.factories) == ["hooks.0", "hooks.1"]


def test_splits_get_canonical_names_and_loaders_keep_theirs(checker) -> None:
    spec = {"type": "torch.utils.data.Subset", "dataset": 1, "indices": [0]}
    found = expand(
        checker, "data", {"dev": {"a": spec, "b": spec}, "train": spec | {"batch_size": 8}}
    )
    assert list(found) == ["val", "train"]
    assert list(found["val"]) == ["a", "b"]
    assert found["val"]["a"]["batch_size"] == 32
    assert found["train"]["batch_size"] == 8
    assert list(checker.factories) == ["data.dev.a", "data.dev.b", "data.train"]


def test_a_free_section_is_not_changed(checker) -> None:
    assert expand(checker, "extra", {"type": "not a component"}) == {"type": "not a component"}
    assert checker.problems == []


def test_wrong_shapes_are_reported(checker) -> None:
    for name, value, what in (
        ("train", 3, "expected a mapping, got 3"),
        ("hooks", {"type": "Console"}, "expected a list, got {type: 'Console'}"),
        ("data", ["x"], "expected a mapping of splits, got ['x']"),
        ("model", [1], "expected a mapping with a type, got [1]"),
        ("model", {"width": 3}, "the model has no type"),
        ("model", {"type": 3}, "expected the name of a model, got 3"),
        ("data", {"trian": "a.B"}, "unknown split 'trian'"),
        ("seed", "x", "expected a whole number, got 'x'"),
        ("env", ["A", 3], "expected a list (each text), got ['A', 3]"),
    ):
        expand(checker, name, value)
        assert checker.problems.pop().what == what
        assert not checker.problems


def test_a_split_under_two_names_is_reported(checker) -> None:
    spec = {"type": "torch.utils.data.Subset", "dataset": 1, "indices": [0]}
    expand(checker, "data", {"val": spec, "dev": spec})
    (problem,) = checker.problems
    assert problem.what == "the split 'val' is given twice, once as 'dev'"
