from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from epochal.config.problems import Findings
from epochal.config.read_yaml import read_yaml
from epochal.config.source_file import SourceText
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from epochal.config.node import Node


def read(text: str) -> tuple[Node, list[Problem]]:
    findings = Findings()
    node = read_yaml(SourceText("x.yaml", text), findings, layer="file")
    assert node is not None, findings.problems
    return node, findings.problems


def plain(text: str) -> object:
    node, problems = read(text)
    assert not problems
    return node.to_plain()


def only_problem(text: str) -> Problem:
    _, problems = read(text)
    assert len(problems) == 1
    return problems[0]


def test_a_config_is_read() -> None:
    text = "model: {type: a.B, lr: 5e-4}\nflags: [on, no, 'yes', null]\nlong: |\n  two\n  lines\n"
    assert plain(text) == {
        "model": {"type": "a.B", "lr": 5e-4},
        "flags": ["on", "no", "yes", None],
        "long": "two\nlines\n",
    }


def test_quoted_numbers_are_text() -> None:
    assert plain("a: '1'\nb: \"2.0\"\nc: 'null'\nd: ''\n") == {
        "a": "1",
        "b": "2.0",
        "c": "null",
        "d": "",
    }


def test_places_count_characters_not_bytes() -> None:
    node, _ = read("ä: {😀: 1, b: 2}\n")
    found = node.find("ä.b")
    assert found.place.column == 14


def test_unusual_line_ends_do_not_shift_places() -> None:
    node, _ = read("a: 'x\u2028y'\nb: 2\n")
    found = node.find("b")
    assert (found.place.line, found.place.column) == (2, 4)


def test_keys_are_text_as_written() -> None:
    assert plain("1: a\ntrue: b\n3.0: c\nnull: d\n") == {
        "1": "a",
        "true": "b",
        "3.0": "c",
        "null": "d",
    }


def test_anchors_repeat_values() -> None:
    node, problems = read(
        "a: &shared {x: 1}\nb: *shared\nc: [*shared]\n&k key: &n 3\nd: *n\n*k : 5\n"
    )
    assert [problem.key for problem in problems] == ["key"]
    assert node.to_plain() == {"a": {"x": 1}, "b": {"x": 1}, "c": [{"x": 1}], "key": 3, "d": 3}
    alias = node.find("b")
    assert (alias.place.line, alias.place.column, alias.place.width) == (2, 4, 7)


def test_core_tags_are_read() -> None:
    text = "a: !!str 5\nb: !!int '5'\nc: !!float 3\nd: !!bool true\ne: !!null ''\nf: ! 7\n"
    assert plain(text) == {"a": "5", "b": 5, "c": 3.0, "d": True, "e": None, "f": "7"}


def test_infinities_are_read() -> None:
    assert plain("a: .inf\nb: -.inf") == {"a": math.inf, "b": -math.inf}


def test_other_tags_are_refused() -> None:
    for value in ("['ls']", "{a: 1}", "x"):
        for tag in (
            "!!python/object/apply:os.system",
            "!!python/name:os.system",
            "!!python/module:os",
            "!!python/object/new:type",
            "!custom",
            "!!set",
            "!!binary",
            "!!timestamp",
            "tag:yaml.org,2002:python/none",
        ):
            written = f"!<{tag}>" if tag.startswith("tag:") else tag
            problem = only_problem(f"a: {written} {value}")
            assert problem.key == "a", tag
            assert "is not read" in problem.what, tag
            assert "plain value" in problem.hint, tag


def test_tags_of_keys_are_refused() -> None:
    assert "is not read" in only_problem("!!python/name:os.system a: 1").what
    assert plain("!!str 1: 2") == {"1": 2}


def test_a_tuple_tag_suggests_a_list() -> None:
    assert "write a plain list" in only_problem("a: !!python/tuple [1, 2]").hint


def test_a_value_that_does_not_match_its_tag_is_reported() -> None:
    assert "is tagged !!int but is not one, got x" in only_problem("a: !!int x").what
    assert "is tagged !!int but is not one" in only_problem("a: !!int true").what


def test_merge_keys_point_to_base_files() -> None:
    problem = only_problem("a: &a {x: 1}\nb:\n  <<: *a\n  y: 2\n")
    assert problem.key == "b.<<"
    assert "`$BASE: shared.yaml`" in problem.hint
    assert plain("'<<': 1") == {"<<": 1}


def test_a_key_must_be_a_word() -> None:
    assert "a key must be a word" in only_problem("? [a, b]\n: 1").what
    assert "a key must be a word" in only_problem("? {a: 1}\n: 1").what


def test_a_key_without_a_value_in_braces_is_a_mistake() -> None:
    problem = only_problem("a: {width:3, depth: 4}")
    assert problem.what == "'width:3' has no value"
    assert "space after the colon" in problem.hint
    assert plain("a: {b: , c: 1}") == {"a": {"b": None, "c": 1}}


def test_an_alias_without_anchor_asks_for_quotes_or_suggests() -> None:
    assert only_problem("match: *.bias").hint == 'put quotes around it: "*.bias"'
    assert only_problem("a: &shared 1\nb: *sharde").hint == "did you mean 'shared'?"


def test_an_alias_of_itself_is_refused() -> None:
    assert "refers to itself" in only_problem("a: &x [*x]").what


def test_streams_and_directives_are_reported() -> None:
    for text, message in (
        ("%YAML 1.1\n---\na: 1", "%YAML and %TAG lines are not read"),
        ("a: 1\n---\nb: 2", "a second document starts here"),
    ):
        assert only_problem(text).what == message


def test_comments_alone_are_no_document() -> None:
    findings = Findings()
    assert read_yaml(SourceText("x", "# nothing\n"), findings, layer="file") is None
    assert not findings.problems


def laughs(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for i in range(1, levels):
        lines.append(f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 10) + "]")
    return "\n".join(lines)


def test_a_billion_laughs_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than 10,000 values"):
        read(laughs(10))


def test_a_thousand_laughs_are_read() -> None:
    assert len(str(plain(laughs(3)))) > 1000


def test_levels_are_counted_through_aliases() -> None:
    deep = "[" * 40 + "]" * 40
    with pytest.raises(ConfigError, match="more than 64 levels deep"):
        read(f"a: &a {deep}\nb: " + "[" * 30 + "*a" + "]" * 30)


def test_a_very_long_tag_is_refused_quickly() -> None:
    findings = Findings()
    assert read_yaml(SourceText("x", "a: " + "!" * 500_000), findings, layer="file") is None
    assert "a tag has more than 1,000 characters" in findings.problems[0].what


def test_reading_may_start_in_the_middle() -> None:
    text = SourceText("command line", "a.b=[1, 22]")
    node = read_yaml(text, Findings(), layer="command line", start=4)
    assert node.to_plain() == [1, 22]
    assert (node.elements[1].place.column, node.elements[1].place.width) == (9, 2)
