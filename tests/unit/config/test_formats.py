"""What YAML, TOML and JSON have in common: places, mistakes, limits; and TOML and JSON alone."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.config.problems import Findings
from epochal.config.read_json import read_json
from epochal.config.read_toml import read_toml
from epochal.config.read_yaml import read_yaml
from epochal.config.source_file import SourceText
from epochal.errors import ConfigError

READERS = {"yaml": read_yaml, "toml": read_toml, "json": read_json}


def read(format: str, text: str) -> tuple[Any, Findings]:
    findings = Findings()
    return READERS[format](SourceText("x", text), findings, layer="file"), findings


def plain(format: str, text: str) -> Any:
    node, findings = read(format, text)
    assert not findings.problems
    return node.to_plain()


def message(format: str, text: str) -> str:
    """What is reported for a text that cannot be read."""
    node, findings = read(format, text)
    assert node is None, text
    assert findings.broken == {""}
    (problem,) = findings.problems
    return str(problem)


def test_a_config_is_read_with_places() -> None:
    for format, text, lr, second in (
        ("yaml", "tag: x\noptim:\n  lr: 5e-4  # warm\n  betas: [0.9, 0.99]\n", "3:7", "4:16"),
        ("toml", 'tag = "x"\n[optim]\nlr = 5e-4\nbetas = [0.9, 0.99]\n', "3:6", "4:15"),
        ("json", '{"tag": "x",\n"optim": {"lr": 5e-4,\n"betas": [0.9, 0.99]}}', "2:17", "3:16"),
    ):
        node, findings = read(format, text)
        assert not findings.problems, format
        assert node.to_plain() == {"tag": "x", "optim": {"lr": 5e-4, "betas": [0.9, 0.99]}}
        found = node.find("optim.lr"), node.find("optim.betas.1")
        assert [str(one.place) for one in found] == [f"x:{lr}", f"x:{second}"]
        assert [one.place.width for one in found] == [4, 4], format
        key, width = found[0].key_place, 4 if format == "json" else 2
        assert (key.text[key.column - 1 :][:width].strip('"'), key.width) == ("lr", width)


def test_a_mistake_is_named_and_placed() -> None:
    for format, text, what, place, hint in (
        ("yaml", "a:\n  b: 1\n\tc: 2", "a tab is used for indentation", "3:1", "with spaces"),
        ("yaml", "model:\n  width:3\n  depth: 2", "a colon needs a space", "2:3", "`width: 3`"),
        ("yaml", "a: [${x}, 1]", "must be quoted", "1:5", '"${x}"'),
        ("yaml", "a:\n  - {b: 1,\n     c: ${x}}", "must be quoted", "3:9", '"${x}"'),
        ("yaml", "lr:3\nwidth: 3", "a colon needs a space", "1:1", "`lr: 3`"),
        ("yaml", "a: 1\nb:2\n", "a colon needs a space", "2:1", "`b: 2`"),
        ("yaml", "a: [1,\nb: 3", "this '[' is never closed", "1:4", "add a ]"),
        ("yaml", "a: {b: 1", "this '{' is never closed", "1:4", "add a }"),
        (
            "yaml",
            "a:\n  b: [1,\n  c: 3\nd: 4\n",
            "expected ',' or ']' here",
            "4:2",
            "line 2, column 6",
        ),
        ("yaml", "a: 'x", "this quote is never closed", "1:4", "add a '"),
        ("yaml", 'a: "x\nb: 2', "this quote is never closed", "1:4", 'add a "'),
        ("yaml", "a: 'it's'", "text after a closing quote", "1:8", "it''s"),
        ("yaml", 'a: "C:\\dir"', "bad escape", "1:8", "single quotes"),
        ("yaml", 'a: "\\U99999999"', "an escape sequence is invalid", "1:2", "write \\\\"),
        ("yaml", "a: @x", "cannot start with '@'", "1:4", "put quotes"),
        ("yaml", "a: `x`", "cannot start with '`'", "1:4", "put quotes"),
        ("yaml", "a: b: c", "a second ': ' in one line", "1:5", "put quotes"),
        ("yaml", "a: 1\n  b: 2", "a key is not allowed here", "2:4", "same column"),
        ("yaml", "foo\nbar: 1", "a key without a colon", "1:1", "`key: value`"),
        ("yaml", "a b\n\n# note\nbar: 1", "a key without a colon", "1:1", "`key: value`"),
        ("yaml", "a:\n  typ m\n  b: 1", "a key without a colon", "2:3", "`key: value`"),
        ("yaml", "a: some\n  text\n  b: 1", "a key is not allowed here", "3:4", "same column"),
        ("yaml", "a: 1\ntag brk\nc:\n  d: 1", "a key without a colon", "2:1", "`key: value`"),
        ("yaml", "a:\n  b: 1\n  tag brk\nc: 1", "a key without a colon", "3:3", "`key: value`"),
        ("yaml", "a:\n  b: 1\n c: 3", "wrong indentation", "3:2", "column 1, as in line 1"),
        ("yaml", "- a\nb: 1", "wrong indentation", "2:1", "entries of a list"),
        ("yaml", "a: b\n- c", "a list entry is not allowed here", "2:1", "indent it"),
        ("yaml", "a: - b", "a list cannot start in the line", "1:4", "[a, b]"),
        ("yaml", "a: {b: 1}}", "unexpected '}'", "1:10", "remove it"),
        ("yaml", "a: ]", "a value is missing here", "1:4", "write one"),
        ("yaml", "a: 1\nb\n", "a key without a colon", "2:1", "`key: value`"),
        ("yaml", "a: \x01", "the character '\\x01'", "1:4", "delete it"),
        ("yaml", "%FOO\n", "document start", "2:1", ""),
        ("json", "{", "this '{' is never closed", "1:1", "add a }"),
        ("json", '{"a": [1, 2', "this '[' is never closed", "1:7", "add a ]"),
        ("json", '{"a": 1', "this '{' is never closed", "1:1", "add a }"),
        ("json", '{"a": 1,', "this '{' is never closed", "1:1", "add a }"),
        ("json", '{"a": 1,}', "a comma before the end", "1:8", "no trailing comma"),
        ("json", '{"a": [1,]}', "a comma before the end", "1:9", "no trailing comma"),
        ("json", "{'a': 1}", "a key must be in double quotes", "1:2", '"key": value'),
        ("json", "{a: 1}", "a key must be in double quotes", "1:2", '"key": value'),
        ("json", '{"a" 1}', "expected ':' after a key", "1:6", '"key": value'),
        ("json", '{"a": NaN}', "'NaN' is not a JSON value", "1:7", '"$nan"'),
        ("json", '{"a": -Infinity}', "'-Infinity' is not a JSON value", "1:7", '"-$inf"'),
        ("json", '{"a": None}', "'None' is not a JSON value", "1:7", "write null"),
        ("json", '{"a": yes}', "'yes' is not a JSON value", "1:7", "double quotes"),
        ("json", '{"a": .5}', "'.5' is not a JSON value", "1:7", "like 0.5"),
        ("json", '{"a": 01}', "'01' is not a JSON value", "1:7", "like 0.5"),
        ("json", "// hi\n{}", "JSON has no comments", "1:1", "YAML or TOML"),
        ("json", '{"a": 1 # x\n}', "JSON has no comments", "1:9", "YAML or TOML"),
        ("json", '{"a": 1\n "b": 2}', "expected ',' or '}' here", "2:2", ""),
        ("json", '{"a": "x}', "this quote is never closed", "1:7", 'add a "'),
        ("json", '{"a": "x\ny"}', "bad character or escape", "1:9", "\\n"),
        ("json", '{"a": "\\q"}', "bad character or escape", "1:8", "\\\\"),
        ("json", '{"a": 1} x', "text after the end", "1:10", ""),
        ("json", '{"a": }', "a value is missing here", "1:7", ""),
        ("json", json.dumps({"a" * 2000: 1}), "a key has more than 900 characters", "1:2", ""),
        ("toml", "a = foo", "this is not a TOML value", "1:5", '"foo"'),
        ("toml", "a = ${x}", "this is not a TOML value", "1:5", '"${x}"'),
        ("toml", "a = None", "this is not a TOML value", "1:5", '"$null"'),
        ("toml", "a = null", "this is not a TOML value", "1:5", '"$null"'),
        ("toml", "a = True", "this is not a TOML value", "1:5", "write true"),
        ("toml", "a = .5", "this is not a TOML value", "1:5", "write 0.5"),
        ("toml", "x = 1\na: 1", "expected '='", "2:2", "`key = value`"),
        ("toml", "a = {\n b = 1 }", "key part", "1:6", "must be on one line"),
        ("toml", "a = [1, 2", "unclosed array", "1:10", "add a comma or a ]"),
        ("toml", "a = 'x", "this quote is never closed", "1:5", "same kind"),
        ("toml", 'a = "x\nb = 1', "this quote is never closed", "1:5", "same kind"),
        ("toml", 'a = """x', "this quote is never closed", "1:5", "same kind"),
        ("toml", 'a = "C:\\dir"', "unescaped", "1:10", "'single quotes'"),
        ("toml", "$BASE = 'x'", "invalid statement", "1:1", '"$BASE"'),
        ("toml", "= 1", "invalid statement", "1:1", "`key = value`"),
        ("toml", "[a", "table declaration", "1:3", "[section]"),
        ("toml", "a = 01", "expected newline", "1:6", "leading zeros"),
        ("toml", "a = " + "9" * 5000, "too many digits", "1:5", ""),
    ):
        first, where, *rest = message(format, text).split("\n")
        assert what in first, text
        assert where == f"  set in x:{place}", text
        assert hint in "\n".join(rest), text


def test_a_mistake_is_shown_with_its_line() -> None:
    assert message("yaml", "optim: {lr: 1e-3, warmup: ${a.b}}") == (
        "x: an interpolation inside { } or [ ] must be quoted\n"
        "  set in x:1:27\n"
        "    optim: {lr: 1e-3, warmup: ${a.b}}\n"
        "                              ^^^^^^\n"
        '  put quotes around it: "${a.b}"'
    )


def test_a_url_with_a_colon_is_no_missing_space() -> None:
    assert "space after" not in message("yaml", "a: http://x\n  b: 1")


def test_a_duplicate_key_names_the_first_place() -> None:
    for format, text, key, place in (
        ("yaml", "model:\n  width: 1\n  width: 3\n", "model.width", "3:3"),
        ("yaml", "a: 1\n'a': 2", "a", "2:1"),
        ("json", '{"a": 1,\n "b": 2,\n "a": 3}', "a", "3:2"),
        ("toml", "[optim]\nlr = 1\nlr = 2", "optim.lr", "3:1"),
        ("toml", "[a]\nx = 1\n[a]\ny = 1", "a", "3:2"),
        ("toml", "[[a]]\nb = 1\n[a]\nb = 2", "a", "3:2"),
        ("toml", "a.b = 1\na.b.c = 2", "a.b", "2:1"),
        ("toml", "x = {a = 1, a = 2}", "x.a", "1:13"),
    ):
        _, findings = read(format, text)
        (problem,) = findings.problems
        assert (problem.key, str(problem.place)) == (key, f"x:{place}"), text
        assert problem.what == f"duplicate key {key.split('.')[-1]!r}", text
        assert "first set in line" in problem.hint, text
    assert read("json", '{"a": 1, "a": 3}')[0].to_plain() == {"a": 1}


def test_values_that_cannot_be_kept_are_reported() -> None:
    texts = {"yaml": "a: {b: %s}", "json": '{"a": {"b": %s}}', "toml": "[a]\nb = %s"}
    for format, value, what in (
        *(
            (one, "99999999999999999999", "fit in 64 bits, got 99999999999999999999")
            for one in texts
        ),
        *((one, "9" * 5000, r"fit in 64 bits, got 9{37}\.\.\.") for one in ("yaml", "json")),
        *((one, "-1e999", "number is too big for a float, got -1e999") for one in texts),
        *((one, r'"\ud800"', "half of a surrogate pair") for one in ("yaml", "json")),
    ):
        _, findings = read(format, texts[format] % value)
        (problem,) = findings.problems
        assert problem.key == "a.b", format
        assert re.search(what, problem.what), format
        assert findings.broken == {"a.b"}, format


def test_half_of_a_surrogate_pair_in_a_key_is_reported() -> None:
    for format, text in (("yaml", r'a: {"\ud800": 1}'), ("json", r'{"a": {"\ud800": 1}}')):
        node, findings = read(format, text)
        assert node.to_plain() == {"a": {}}
        assert [problem.key for problem in findings.problems] == ["a"], format


def test_too_many_levels_are_refused() -> None:
    for format, text in (
        ("yaml", "[" * 100_000),
        ("yaml", "- " * 100_000),
        ("yaml", "{a: " * 70 + "1" + "}" * 70),
        ("json", "[" * 100_000),
        ("json", "[" * 70 + "]" * 70),
        ("json", '{"a":' * 100_000),
        ("toml", "a = " + "[" * 100_000),
        ("toml", ".".join(["a"] * 100_000) + " = 1"),
        ("toml", "[" + "a." * 100_000 + "a]"),
        ("toml", "a = " + "{a=" * 100),
    ):
        with pytest.raises(ConfigError, match="more than 64 levels deep"):
            read(format, text)


def test_too_many_values_are_refused() -> None:
    many = "[" + "1," * 20_000 + "1]"
    for format, text in (("yaml", "- a\n" * 10_001), ("json", many), ("toml", f"a = {many}")):
        with pytest.raises(ConfigError, match="more than 10,000 values"):
            read(format, text)


DOCUMENT = '''\
# a comment
tag = "x"          # another
"quoted.key" = 1
'single' = 'a # b'
"es\\tcaped" = 2
multi = """
two [lines] = "x"
"""
raw = \'\'\'a\'\'b\'\'\'
when = 2020-01-01 10:00:00+01:00
[model]
type = "M"
a.b = [1, [2, 3],  # inner
  {x = 4, y.z = 5},
]
[model.sub]
inf = -inf
[[hooks]]
type = "A"
[hooks.options]
k = 1
[[hooks.inner]]
v = 1
[[hooks.inner]]
v = 2
[[hooks]]
[[hooks.inner]]
v = 3
'''


def test_every_value_of_a_toml_document_has_its_place() -> None:
    root, findings = read("toml", DOCUMENT)
    assert not findings.problems
    for path, place in (
        (("tag",), "2:7"),
        (("quoted.key",), "3:16"),
        (("single",), "4:12"),
        (("es\tcaped",), "5:15"),
        (("multi",), "6:9"),
        (("raw",), "9:7"),
        (("when",), "10:8"),
        (("model",), "11:2"),
        (("model", "a"), "13:1"),
        (("model", "a", "b", 0), "13:8"),
        (("model", "a", "b", 1, 1), "13:15"),
        (("model", "a", "b", 2), "14:3"),
        (("model", "a", "b", 2, "y", "z"), "14:17"),
        (("model", "sub", "inf"), "17:7"),
        (("hooks", 0), "18:3"),
        (("hooks", 0, "options", "k"), "21:5"),
        (("hooks", 0, "inner", 1, "v"), "25:5"),
        (("hooks", 1, "inner", 0, "v"), "28:5"),
    ):
        node = root
        for part in path:
            node = node.elements[part] if isinstance(part, int) else node.mapping[part]
        assert str(node.place) == f"x:{place}", path
    key = root.find("model.a.b").key_place
    assert (str(key), key.width) == ("x:13:1", 3)


def test_toml_tables_below_each_other_are_no_duplicates() -> None:
    text = "[a.b]\nx = 1\n[a]\ny = 2\n[a.c]\n[[d]]\n[d.e]\n[[d]]\n[d.e]\n"
    assert plain("toml", text) == tomllib.loads(text)


def test_toml_dates_are_the_text_that_yaml_would_give() -> None:
    text = "a = 2020-01-01\nb = 2020-01-01 10:00:00\nc = 07:32:00\n"
    expected = {"a": "2020-01-01", "b": "2020-01-01 10:00:00", "c": "07:32:00"}
    assert plain("toml", text) == expected


def test_toml_infinities_are_read() -> None:
    values = plain("toml", "a = inf\nb = -inf\nc = +inf\nd = nan\n")
    assert repr(values) == "{'a': inf, 'b': -inf, 'c': inf, 'd': nan}"


@given(st.text(alphabet="ab.=[]{}\"'#\n ,1", max_size=30))
def test_what_tomllib_reads_is_read_with_a_place_for_each_value(text) -> None:
    node, findings = read("toml", text)
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assert node is None
        assert len(findings.problems) == 1
        return
    assert node.to_plain() == expected
    assert all(leaf.place.line for path, leaf in node.iter_leaves() if path)


trees = st.recursive(
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


@given(trees, st.sampled_from([None, 0, 2, "\t"]), st.booleans())
def test_json_is_read_as_the_json_module_reads_it(tree, indent, ascii) -> None:
    text = json.dumps(tree, indent=indent, ensure_ascii=ascii)
    assert repr(plain("json", text)) == repr(tree)


def test_json_strings_are_never_read_as_yaml() -> None:
    text = r'{"<<" : ["\ud83d\ude00", "\/", "*a"], "b"\n:\t"a: # c", "c": "' + '\x7f\u2028 \x85"}'
    expected = {"<<": ["😀", "/", "*a"], "b": "a: # c", "c": "\x7f\u2028 \x85"}
    assert plain("json", text.replace(r"\n:\t", "\n:\t")) == expected


@given(st.text(alphabet='{}[]",:0.1eE+-ntrufalsN \\\n/', max_size=25))
def test_what_the_json_module_refuses_is_a_problem(text) -> None:
    node, findings = read("json", text)
    try:
        json.loads(text, parse_constant=lambda word: 1 / 0)
    except (ValueError, ZeroDivisionError):
        assert node is None
        assert len(findings.problems) == 1
    else:
        assert node is not None
