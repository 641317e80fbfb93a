from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from epochal.config.merge import merge, merge_all, nest, relabel
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


def test_delete_that_finds_nothing_waits_for_a_tree_further_down() -> None:
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
def test_merging_a_tree_with_itself_changes_nothing(tree: object) -> None:
    assert merged(tree, tree) == tree


@given(mappings, mappings, mappings)
def test_merging_is_associative(a: object, b: object, c: object) -> None:
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
