from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.config.problems import Findings
from epochal.config.read_json import read_json
from epochal.config.source_file import SourceText
from epochal.errors import ConfigError

if TYPE_CHECKING:
    from epochal.config.node import Node


def read(text: str) -> tuple[Node | None, Findings]:
    findings = Findings()
    return read_json(SourceText("x.json", text), findings, layer="file"), findings


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=5), children, max_size=4)
    ),
    max_leaves=20,
)


@given(plain, st.sampled_from([None, 0, 2, "\t"]), st.booleans())
def test_json_is_read_as_the_standard_library_reads_it(
    value: object, indent: int | str | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).replace("\x7f", "\\u007f")
    node, findings = read(text)
    assert not findings.problems
    assert node.to_plain() == json.loads(text)
    assert repr(node.to_plain()) == repr(value)


@given(st.text(alphabet='{}[]",:0.1eE+-ntrufalsN \\\n/', max_size=25))
def test_what_the_standard_library_refuses_is_a_problem(text: str) -> None:
    try:
        json.loads(text, parse_constant=lambda word: 1 / 0)
    except (ValueError, ZeroDivisionError):
        node, findings = read(text)
        assert node is None
        assert len(findings.problems) == 1
    else:
        node, _ = read(text)
        assert node is not None


def test_values_and_keys_know_their_places() -> None:
    node, _ = read('{\n  "optim": {"lr": 0.1, "betas": [0.9, 0.99]}\n}')
    lr, second = node.find("optim.lr"), node.find("optim.betas.1")
    assert (lr.place.line, lr.place.column, lr.place.width) == (2, 19, 3)
    assert (lr.key_place.column, lr.key_place.width) == (13, 4)
    assert (second.place.column, second.place.width) == (39, 4)


def test_a_mistake_is_named_and_placed() -> None:
    for text, what, place, hint in (
        ("{", "this '{' is never closed", "1:1", "add a }"),
        ('{"a": [1, 2', "this '[' is never closed", "1:7", "add a ]"),
        ('{"a": 1', "this '{' is never closed", "1:1", "add a }"),
        ('{"a": 1,', "this '{' is never closed", "1:1", "add a }"),
        ('{"a": 1,}', "a comma before the end", "1:8", "no last comma"),
        ('{"a": [1,]}', "a comma before the end", "1:9", "no last comma"),
        ("{'a': 1}", "a key must stand in double quotes", "1:2", '"key": value'),
        ("{a: 1}", "a key must stand in double quotes", "1:2", '"key": value'),
        ('{"a" 1}', "expected ':' after a key", "1:6", '"key": value'),
        ('{"a": NaN}', "'NaN' is no JSON value", "1:7", '"$nan"'),
        ('{"a": -Infinity}', "'-Infinity' is no JSON value", "1:7", '"-$inf"'),
        ('{"a": None}', "'None' is no JSON value", "1:7", "write null"),
        ('{"a": yes}', "'yes' is no JSON value", "1:7", "double quotes"),
        ('{"a": .5}', "'.5' is no JSON value", "1:7", "like 0.5"),
        ('{"a": 01}', "'01' is no JSON value", "1:7", "like 0.5"),
        ("// hi\n{}", "JSON has no comments", "1:1", "YAML or TOML"),
        ('{"a": 1 # x\n}', "JSON has no comments", "1:9", "YAML or TOML"),
        ('{"a": 1\n "b": 2}', "expected ',' or '}' here", "2:2", ""),
        ('{"a": "x}', "this quote is never closed", "1:7", 'add a "'),
        ('{"a": "x\ny"}', "bad character or escape", "1:9", "\\n"),
        ('{"a": "\\q"}', "bad character or escape", "1:8", "\\\\"),
        ('{"a": 1} x', "text after the end", "1:10", ""),
        ('{"a": }', "a value is missing here", "1:7", ""),
    ):
        node, findings = read(text)
        (problem,) = findings.problems
        assert node is None, text
        assert what in problem.what, text
        assert str(problem.place) == f"x.json:{place}", text
        assert hint in problem.hint, text


def test_values_that_cannot_be_kept_are_reported() -> None:
    for value, message in (
        ("99999999999999999999", "integer does not fit in 64 bits, got 9999"),
        ("9" * 5000, "integer does not fit in 64 bits"),
        ("-1e999", "number is too big for a float, got -1e999"),
        (r'"\ud800"', "half of a surrogate pair"),
    ):
        _, findings = read(f'{{"a": {{"b": {value}}}}}')
        (problem,) = findings.problems
        assert problem.key == "a.b", value
        assert message in problem.what, value
        assert findings.broken == {"a.b"}, value


def test_a_duplicate_key_names_the_first_place() -> None:
    node, findings = read('{"a": 1,\n "b": 2,\n "a": 3}')
    (problem,) = findings.problems
    assert node.to_plain() == {"a": 1, "b": 2}
    assert problem.what == "duplicate key 'a'"
    assert str(problem.place) == "x.json:3:2"
    assert "first set in line 1" in problem.hint


def test_surrogate_pairs_are_one_character() -> None:
    node, _ = read(r'{"a": "\ud83d\ude00"}')
    assert node.to_plain() == {"a": "😀"}


def test_too_many_levels_are_refused() -> None:
    for text in ("[" * 100_000, '{"a":' * 100_000):
        with pytest.raises(ConfigError, match="more than 64 levels deep"):
            read(text)


def test_too_many_values_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than 10,000 values"):
        read("[" + "1," * 20_000 + "1]")
