from __future__ import annotations

from typing import Any

from epochal.config.node import from_plain
from epochal.config.problems import Findings
from epochal.config.type_aliases import rename_aliases, rename_path, rename_spec, rename_value


def renamed(tree: Any) -> Any:
    findings = Findings()
    result = rename_aliases(from_plain(tree), findings).to_plain()
    assert not findings.problems
    return result


def test_type_aliases_are_read_as_type() -> None:
    for alias in ("NAME", "_target_", "class_path"):
        tree = {"model": {alias: "a.B", "inner": {alias: "C"}}, "hooks": [{alias: "H"}]}
        assert renamed(tree) == {
            "model": {"type": "a.B", "inner": {"type": "C"}},
            "hooks": [{"type": "H"}],
        }, alias


def test_a_renamed_key_keeps_its_position() -> None:
    assert list(renamed({"model": {"width": 1, "NAME": "M", "depth": 2}})["model"]) == [
        "width",
        "type",
        "depth",
    ]


def test_arguments_of_a_class_path_move_up() -> None:
    tree = {
        "model": {"class_path": "a.B", "init_args": {"x": {"class_path": "C", "init_args": {}}}}
    }
    assert renamed(tree) == {"model": {"type": "a.B", "x": {"type": "C"}}}


def test_values_that_name_no_component_are_not_renamed() -> None:
    for tree in (
        {"NAME": "top level"},
        {"extra": {"NAME": "mine", "deep": {"class_path": "x"}}},
        {"model": {"NAME": {"not": "a name"}}},
        {"model": {"type": "M", "init_args": {"x": 1}}},
        {"model": {"class_path": "M", "init_args": 3}} and {"model": {"init_args": 3}},
    ):
        assert renamed(tree) == tree


def test_two_names_of_one_component_are_reported() -> None:
    for spec, what in (
        ({"type": "A", "NAME": "B"}, "both 'type' and 'NAME' name the component"),
        ({"NAME": "A", "_target_": "B"}, "both 'NAME' and '_target_' name the component"),
    ):
        findings = Findings()
        rename_aliases(from_plain({"model": spec}), findings)
        assert [(problem.key, problem.what) for problem in findings.problems] == [
            ("model", what)
        ], spec


def test_an_argument_given_twice_is_reported() -> None:
    findings = Findings()
    spec = {"class_path": "A", "x": 1, "init_args": {"x": 2}}
    rename_aliases(from_plain({"model": spec}), findings)
    assert findings.problems[0].key == "model.x"
    assert "is set in init_args and beside it" in findings.problems[0].what


def test_one_spec_is_renamed_without_those_below() -> None:
    node = rename_spec(from_plain({"NAME": "A", "x": {"NAME": "B"}}), "model", Findings())
    assert node.to_plain() == {"type": "A", "x": {"NAME": "B"}}
    assert rename_spec(from_plain([1]), "model", Findings()).to_plain() == [1]


def test_values_set_by_path_are_renamed_outside_extra() -> None:
    node = from_plain([{"NAME": "A"}])
    assert rename_value(node, "hooks", Findings()).to_plain() == [{"type": "A"}]
    assert rename_value(node, "extra.x", Findings()).to_plain() == [{"NAME": "A"}]


def test_paths_are_renamed_in_their_last_part() -> None:
    for path, result in (
        ("model.NAME", "model.type"),
        ("a.b._target_", "a.b.type"),
        ("NAME", "NAME"),
        ("extra.NAME", "extra.NAME"),
        ("model.width", "model.width"),
    ):
        assert rename_path(path) == result
