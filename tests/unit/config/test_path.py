from __future__ import annotations

from typing import Any

import pytest

from epochal.config.merge import PathError, assign
from epochal.config.node import from_plain

TREE = {"optim": {"lr": 1, "betas": [1, 2]}, "hooks": [{"patience": 1}], "model": None, "tag": "x"}


def assigned(path: str, value: Any) -> Any:
    return assign(from_plain(TREE), path, from_plain(value)).to_plain()


def test_a_value_is_set_by_its_path() -> None:
    for path, value, changed in (
        ("optim.lr", 2, {"optim": {"lr": 2, "betas": [1, 2]}}),
        ("optim.eps", 3, {"optim": {"lr": 1, "betas": [1, 2], "eps": 3}}),
        ("optim", {"lr": 5}, {"optim": {"lr": 5, "betas": [1, 2]}}),
        ("optim.betas", [3], {"optim": {"lr": 1, "betas": [3]}}),
        ("optim.betas.1", 9, {"optim": {"lr": 1, "betas": [1, 9]}}),
        ("hooks.0.patience", 7, {"hooks": [{"patience": 7}]}),
        ("hooks.0", {"x": 1}, {"hooks": [{"patience": 1, "x": 1}]}),
        ("model.width", 3, {"model": {"width": 3}}),
        ("new.deep.key", 1, {"new": {"deep": {"key": 1}}}),
        ("tag", {"a": 1}, {"tag": {"a": 1}}),
        ("optim.lr", "$delete", {"optim": {"betas": [1, 2]}}),
        ("hooks.0", "$delete", {"hooks": []}),
    ):
        assert assigned(path, value) == TREE | changed


def test_a_path_that_leads_nowhere_is_refused() -> None:
    for path, value, what, hint in (
        ("tag.x", 1, "tag is 'x' and has no key 'x'", ""),
        ("optim.lr.x", 1, "optim.lr is 1 and has no key 'x'", ""),
        ("hooks.1", 1, "hooks is a list of 1 and has no element '1'", "from 0 to 0"),
        ("hooks.first", 1, "hooks is a list of 1 and has no element 'first'", "from 0 to 0"),
        ("hooks.99999999999999999999", 1, "has no element", "from 0 to 0"),
        ("optim.lrr", "$delete", "nothing to delete at optim.lrr", "did you mean 'lr'?"),
    ):
        with pytest.raises(PathError) as caught:
            assigned(path, value)
        assert what in str(caught.value), path
        assert hint in caught.value.hint, path


def test_an_empty_list_has_no_elements_to_set() -> None:
    with pytest.raises(PathError) as caught:
        assign(from_plain({"hooks": []}), "hooks.0", from_plain(1))
    assert caught.value.hint == "set all of it: hooks=[...]"


def test_what_was_replaced_is_remembered() -> None:
    root = from_plain(TREE)
    changed = assign(root, "optim.lr", from_plain(2, layer="command line")).find("optim.lr")
    assert changed.replaced is root.find("optim.lr")
    made = assign(root, "model.width", from_plain(2)).find("model")
    assert made.replaced is root.find("model")


def test_an_element_of_a_list_that_is_not_there_is_refused() -> None:
    for tree in ({}, {"hooks": None, "metrics": None, "imports": None}):
        for path in ("hooks.0.patience", "metrics.1", "imports.0"):
            name = path.split(".")[0]
            with pytest.raises(PathError, match=f"there are no {name}") as caught:
                assign(from_plain(tree), path, from_plain(3))
            assert caught.value.hint == f"add them: {name}=[...]", path


def test_numbers_may_be_keys_of_ones_own() -> None:
    assert assigned("extra.0.x", 1)["extra"] == {"0": {"x": 1}}
