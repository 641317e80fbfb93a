from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.config.merge import PathError, assign, merge, merge_all, nest, relabel
from epochal.config.node import Node, from_plain


def merged(*trees: Any) -> Any:
    result = merge_all(from_plain(tree) for tree in trees)
    return result.to_plain() if result else None


def test_mappings_merge_key_by_key() -> None:
    assert merged({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}, "b": 4}) == {
        "a": {"x": 1, "y": 3},
        "b": 4,
    }


def test_lists_and_scalars_replace() -> None:
    for above in ([3], 3, "x", None, [], {"z": 1}):
        assert merged({"a": [1, 2]}, {"a": above}) == {"a": above}
        assert merged({"a": above}, {"a": [1, 2]}) == {"a": [1, 2]}


def test_an_empty_mapping_above_removes_nothing() -> None:
    assert merged({"a": {"x": 1}}, {"a": {}}) == {"a": {"x": 1}}


def test_the_arguments_below_stay_when_the_type_changes() -> None:
    below = {"optim": {"type": "SGD", "lr": 0.1, "momentum": 0.9}}
    above = {"optim": {"type": "AdamW", "momentum": "$delete"}}
    assert merged(below, above) == {"optim": {"type": "AdamW", "lr": 0.1}}


def test_later_trees_win() -> None:
    assert merged({"a": 1}, {"a": 2}, {"a": 3}) == {"a": 3}
    assert merged() is None


def test_delete_removes_what_lies_below() -> None:
    assert merged({"a": {"x": 1, "y": 2}}, {"a": {"x": "$delete"}}) == {"a": {"y": 2}}
    assert merged({"a": {"x": 1}}, {"a": "$delete"}) == {}


def test_an_unused_delete_is_kept_for_the_next_merge() -> None:
    assert merged({"b": 1}, {"a": "$delete"}) == {"b": 1, "a": "$delete"}


def test_what_was_replaced_is_remembered_in_order() -> None:
    trees = [from_plain({"lr": value}, layer=str(value)) for value in (1, 2, 3)]
    upper = merge(trees[1], trees[2])
    node: Node | None = merge(trees[0], upper).find("lr")
    layers = []
    while node is not None:
        layers.append(node.layer)
        node = node.replaced
    assert layers == ["3", "2", "1"]


def test_nesting_makes_one_mapping_per_part() -> None:
    assert nest(["a", "b"], from_plain(1)).to_plain() == {"a": {"b": 1}}
    assert nest([], from_plain(1)).to_plain() == 1


def test_relabelling_reaches_every_value() -> None:
    tree = relabel(from_plain({"a": [1, {"b": 2}]}), "variant")
    assert {node.layer for _, node in tree.iter_leaves()} == {"variant"}
    assert tree.to_plain() == {"a": [1, {"b": 2}]}


plain = st.recursive(
    st.none() | st.booleans() | st.integers(),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), children, max_size=3)
    ),
    max_leaves=8,
)
mappings = st.dictionaries(st.sampled_from("abc"), plain, max_size=3)


@given(mappings)
def test_merging_a_tree_with_itself_changes_nothing(tree) -> None:
    assert merged(tree, tree) == tree


@given(mappings, mappings, mappings)
def test_merging_is_associative(a, b, c) -> None:
    assert merged(merged(a, b), c) == merged(a, merged(b, c)) or _hides(a, b, c)


def _hides(a: Any, b: Any, c: Any) -> bool:
    """Whether a scalar in the middle replaced a mapping, where the order matters."""
    keys = set(a) & set(b) & set(c)
    return any(
        isinstance(a[k], dict)
        and isinstance(c[k], dict)
        and (not isinstance(b[k], dict) or _hides(a[k], b[k], c[k]))
        for k in keys
    )


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


def test_numbers_may_be_keys_of_extra() -> None:
    assert assigned("extra.0.x", 1)["extra"] == {"0": {"x": 1}}
