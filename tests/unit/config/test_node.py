from __future__ import annotations

from epochal.config.node import Node, from_plain
from epochal.errors import Place

PLAIN = {"model": {"width": 3, "sizes": [1, 2.5, {"deep": None}]}, "tag": "x", "empty": {}}


def test_a_tree_gives_its_plain_values_back() -> None:
    assert from_plain(PLAIN).to_plain() == PLAIN
    assert from_plain({"a": (1, 2), "b": Place("x")}).to_plain() == {"a": [1, 2], "b": "x"}


def test_a_dotted_path_leads_to_a_value() -> None:
    for path, value in (
        ("model.width", 3),
        ("model.sizes.1", 2.5),
        ("model.sizes.2.deep", None),
        ("tag", "x"),
    ):
        node = from_plain(PLAIN).find(path)
        assert node.to_plain() == value, path


def test_a_path_that_leads_nowhere_finds_nothing() -> None:
    tree = from_plain(PLAIN)
    assert tree.find("") is tree
    for path in ("modl", "model.sizes.3", "model.sizes.x", "tag.x", "model..width"):
        assert tree.find(path) is None, path


def test_leaves_are_scalars_and_empty_collections() -> None:
    leaves = {path: node.to_plain() for path, node in from_plain(PLAIN).iter_leaves()}
    assert leaves == {
        "model.width": 3,
        "model.sizes.0": 1,
        "model.sizes.1": 2.5,
        "model.sizes.2.deep": None,
        "tag": "x",
        "empty": {},
    }


def test_a_scalar_has_neither_entries_nor_elements() -> None:
    node = Node(3)
    assert not (node.mapping)
    assert not (node.elements)
    assert not (node.is_mapping)
    assert not (node.is_list)


def test_a_path_has_the_place_of_its_value_or_its_parent() -> None:
    written, around = Place("a.yaml", 2, 5), Place("a.yaml", 2, 1)
    lr = Node(0.1, written, written)
    default = Node(True, Place("source.py", 9), Place("source.py", 9), "default")
    root = Node({"optim": Node({"lr": lr, "fused": default}, around, around)}, around)
    assert root.find_place("optim.lr") == written
    assert root.find_place("optim.fused") == around
    assert root.find_place("optim.groups.0.lr") == around
    assert root.find_place("model.width") is None


def test_values_from_python_have_no_place() -> None:
    assert from_plain({"optim": {"lr": 0.1}}).find_place("optim.lr") is None
