from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from epochal.config import load
from epochal.config.interpolate import interpolate
from epochal.config.node import Node, from_plain
from epochal.config.problems import Findings
from epochal.errors import Place


def fill(tree: Any, environment: dict[str, str] | None = None) -> tuple[Node, Findings]:
    findings = Findings()
    node = from_plain(tree, place=Place("x.yaml"))
    return interpolate(node, findings, environment or {}), findings


def filled(tree: Any, environment: dict[str, str] | None = None) -> Any:
    node, findings = fill(tree, environment)
    assert not findings.problems
    return node.to_plain()


def test_a_whole_reference_keeps_the_type() -> None:
    for value in (3, 0.5, True, None, "x", [1, 2], {"k": 1}):
        assert filled({"a": value, "b": "${a}"})["b"] == value


def test_a_reference_inside_a_text_becomes_text() -> None:
    for value, text in ((3, "3"), (0.5, "0.5"), (True, "true"), (None, "null"), ("x", "x")):
        assert filled({"a": value, "b": "<${a}>"})["b"] == f"<{text}>"


def test_references_lead_through_each_other() -> None:
    tree = {"a": "${b.c}", "b": {"c": "${d.0}-x"}, "d": ["${e}"], "e": 7}
    assert filled(tree) == {"a": "7-x", "b": {"c": "7-x"}, "d": [7], "e": 7}
    tree = {"model": {"width": 3, "w": "${ model.width }"}, "copy": "${model}", "w": "${copy.w}"}
    assert filled(tree)["w"] == 3
    assert filled({"a": 1, "b": 2, "c": "${a}${b} and ${a}"})["c"] == "12 and 1"


def test_keys_with_dots_are_not_mistaken_for_paths() -> None:
    tree = {"a.b": "${x}", "a": {"b": "${y}", "": "${x}"}, "": "${y}", "x": 1, "y": 2}
    assert filled(tree) == {"a.b": 1, "a": {"b": 2, "": 1}, "": 2, "x": 1, "y": 2}


DOLLARS = [
    ("$${a}", "${a}"), ("$$${a}", "$${a}"), ("$${a} ${a}", "${a} 1"), ("$${a${a}", "${a1"),
    ("cost 5$", "cost 5$"), ("$a", "$a"), ("$$", "$$"), ("$null", None), ("$inf", math.inf),
    ("$$null", "$null"), ("$$delete", "$delete"),
]  # fmt: skip


def test_dollars_are_read() -> None:
    for text, value in DOLLARS:
        assert filled({"a": 1, "b": text})["b"] == value


def test_resolved_values_are_not_resolved_again() -> None:
    assert filled({"a": "$${b}", "b": 1, "c": "${a}", "d": "${a}!"})["d"] == "${b}!"
    assert filled({"a": "$$null", "c": "${a}"})["c"] == "$null"


def test_the_written_text_is_kept_as_template() -> None:
    node, _ = fill({"a": 1, "b": "x${a}", "c": 3})
    assert (node.mapping["b"].template, node.mapping["c"].template) == ("x${a}", None)


def test_copied_values_keep_their_own_places() -> None:
    tree = Node(
        {
            "a": Node({"k": Node(1, Place("x", 1, 5))}, Place("x", 1, 1)),
            "b": Node("${a}", Place("x", 2, 4)),
        }
    )
    copy = interpolate(tree, Findings(), {}).mapping["b"]
    assert copy.place.line == 2
    assert copy.mapping["k"].place.line == 1


def test_a_reference_that_cannot_be_filled_in_is_reported() -> None:
    for text, what, hint in (
        (
            "${modl.width}",
            "refers to 'modl.width', which is not set",
            "did you mean 'model.width'?",
        ),
        ("${model.width.x}", "refers to 'model.width.x', which is not set", ""),
        ("${model..width}", "which is not set", ""),
        ("${.width}", "refers to '.width', which is not set", "the whole path"),
        ("${}", "'${}' is empty", "${section.key}"),
        ("a ${b", "'${' is never closed", "$${ for the text itself"),
        ("${a{b}}", "'${' is never closed", "$${"),
        ("${oc.env:X}", "unknown kind of reference '${oc.env:X}'", "${env:NAME}"),
        ("x ${model}", "${model} is a mapping and cannot be part of a text", "whole value"),
        ("x ${sizes}", "${sizes} is a list and cannot be part of a text", "whole value"),
        ("${env:HOME}", "environment name 'HOME' is not declared", "`env: [HOME]`"),
        ("${env:UNSET}", "environment variable 'UNSET' is not set", "export UNSET=VALUE"),
        ("${broken}", "references form a cycle: broken -> broken", "set one of these"),
    ):
        tree = {"model": {"width": 1}, "sizes": [1], "env": ["UNSET"], "broken": text}
        node, findings = fill(tree)
        (problem,) = findings.problems
        assert problem.key == "broken", text
        assert problem.what == what or what in problem.what, text
        assert hint in problem.hint, text
        assert findings.broken == {"broken"}, text
        assert node.mapping["broken"].value == text


def test_a_cycle_is_reported_once_with_its_chain() -> None:
    node, findings = fill({"a": "${b}", "b": {"x": "${c.0}"}, "c": ["${a.x}"], "d": "${a.x}"})
    assert len(findings.problems) == 1
    assert "cycle" in findings.problems[0].what
    assert {"c.0", "b.x"} <= findings.broken
    assert node.to_plain().keys() == {"a", "b", "c", "d"}


def test_a_mapping_may_not_hold_a_reference_to_itself() -> None:
    _, findings = fill({"model": {"x": "${model}"}})
    (problem,) = findings.problems
    assert problem.what == "references form a cycle: model -> model.x -> model"


def test_what_depends_on_a_broken_value_is_unknown_and_not_reported_again() -> None:
    _, findings = fill({"a": "${nope}", "b": "${a}", "c": {"d": "x${b}"}})
    assert [problem.key for problem in findings.problems] == ["a"]
    assert findings.broken == {"a", "b", "c.d"}


def test_the_reference_itself_is_underlined() -> None:
    tree = Node({"a": Node("x-${nope}-y", Place("c.yaml", 3, 4, "a: x-${nope}-y", 11))})
    findings = Findings()
    interpolate(tree, findings, {})
    place = findings.problems[0].place
    assert (place.line, place.column, place.width) == (3, 6, 7)


def test_declared_environment_names_are_filled_in_as_text() -> None:
    tree = {"env": ["N", "DIR"], "a": "${env:N}", "b": "${env:DIR}/x"}
    assert filled(tree, {"N": "12", "DIR": "/data"}) == {
        "env": ["N", "DIR"],
        "a": "12",
        "b": "/data/x",
    }


def test_the_real_environment_is_the_default(monkeypatch) -> None:
    monkeypatch.setenv("EPOCHAL_TEST", "yes")
    config = load({"env": ["EPOCHAL_TEST"], "a": "${env:EPOCHAL_TEST}"})
    assert config.root.to_plain()["a"] == "yes"


def test_environment_names_must_be_a_list_of_texts() -> None:
    for section in ("HOME", {"HOME": 1}, [1], ["A", ["B"]], None):
        _, findings = fill({"env": section})
        assert findings.problems[0].what == "expected a list of names", section


def test_environment_values_keep_a_self_contained_template() -> None:
    tree = {"env": ["D"], "w": 3, "a": "${env:D}", "b": "${a}/${w}/$${c}", "c": "${b}"}
    node, _ = fill(tree, {"D": "/secret"})
    assert node.mapping["b"].value == "/secret/3/${c}"
    assert node.mapping["b"].template == "${env:D}/3/$${c}"
    assert node.mapping["c"].template == "${env:D}/3/$${c}"


def test_a_leftover_delete_is_reported_and_removed() -> None:
    node, findings = fill({"a": {"b": "$delete", "c": 1}})
    (problem,) = findings.problems
    assert (problem.key, problem.what) == ("a.b", "there is no inherited value to delete")
    assert node.to_plain() == {"a": {"c": 1}}


def test_a_delete_below_an_unreadable_base_is_fine() -> None:
    findings = Findings(broken={"a"})
    assert interpolate(from_plain({"a": {"b": "$delete"}}), findings, {}).to_plain() == {"a": {}}
    assert not findings.problems


def test_a_reference_that_an_unreadable_base_may_set_is_not_reported() -> None:
    findings = Findings(broken={"optim"})
    interpolate(from_plain({"a": "${optim.lr}", "b": "${other}"}), findings, {})
    assert [problem.key for problem in findings.problems] == ["b"]


def test_an_element_of_a_list_cannot_be_deleted() -> None:
    _, findings = fill({"a": [1, "$delete"]})
    assert findings.problems[0].key == "a.1"


def test_references_that_multiply_values_are_stopped() -> None:
    tree: dict[str, Any] = {"a0": ["x"] * 10}
    for i in range(1, 12):
        tree[f"a{i}"] = [f"${{a{i - 1}}}"] * 10
    _, findings = fill(tree)
    assert "references make the config too big" in findings.problems[0].what


def test_references_that_multiply_text_are_stopped() -> None:
    tree = {"a0": "x" * 10}
    for i in range(1, 40):
        tree[f"a{i}"] = f"${{a{i - 1}}}${{a{i - 1}}}"
    node, findings = fill(tree)
    assert "references make the config too big" in findings.problems[0].what
    assert sum(len(str(child.value)) for child in node.mapping.values()) < 3_000_000


def test_references_that_nest_too_deep_are_stopped() -> None:
    tree: dict[str, Any] = {f"a{i}": {"x": {"y": f"${{a{i + 1}}}"}} for i in range(60)}
    tree["a60"] = 1
    _, findings = fill(tree)
    assert findings.problems


def test_a_long_chain_of_references_does_not_exhaust_the_stack() -> None:
    tree: dict[str, Any] = {f"a{i}": f"${{a{i + 1}}}" for i in range(5_000)}
    _, findings = fill(tree)
    assert findings.problems


def test_thousands_of_dangling_references_are_all_reported() -> None:
    _, findings = fill({f"a{i}": f"${{b{i}}}" for i in range(2_000)})
    assert len(findings.problems) == 2_000
    assert sum(bool(problem.hint) for problem in findings.problems) <= 5


@given(st.dictionaries(st.sampled_from("abc"), st.text("${}abc.:- ", max_size=12), max_size=3))
def test_no_text_raises_an_exception(tree) -> None:
    node, findings = fill(tree)
    assert node.is_mapping
    assert len(findings.problems) <= len(tree)
