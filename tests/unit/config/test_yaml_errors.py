from __future__ import annotations

from epochal.config.problems import Findings
from epochal.config.read_yaml import read_yaml
from epochal.config.source_file import SourceText


def message(text: str) -> str:
    findings = Findings()
    assert read_yaml(SourceText("x.yaml", text), findings, layer="file") is None
    assert findings.broken == {""}
    (problem,) = findings.problems
    return str(problem)


def test_an_unquoted_interpolation_in_braces() -> None:
    assert message("optim: {lr: 1e-3, warmup: ${a.b}}") == (
        "x.yaml: an interpolation inside { } or [ ] must be quoted\n"
        "  set in x.yaml:1:27\n"
        "    optim: {lr: 1e-3, warmup: ${a.b}}\n"
        "                              ^^^^^^\n"
        '  put quotes around it: "${a.b}"'
    )


def test_a_tab() -> None:
    assert message("a:\n  b: 1\n\tc: 2") == (
        "x.yaml: a tab is used for indentation\n"
        "  set in x.yaml:3:1\n"
        "    c: 2\n"
        "    ^\n"
        "  indent with spaces; YAML takes no tabs"
    )


def test_a_colon_without_a_space() -> None:
    assert message("model:\n  width:3\n  depth: 2") == (
        "x.yaml: a colon needs a space after it\n"
        "  set in x.yaml:2:3\n"
        "    width:3\n"
        "    ^^^^^^^\n"
        "  put a space after the colon: `width: 3`"
    )


def test_a_mistake_is_named_and_placed() -> None:
    for text, what, place, hint in (
        ("a: [${x}, 1]", "must be quoted", "1:5", '"${x}"'),
        ("a:\n  - {b: 1,\n     c: ${x}}", "must be quoted", "3:9", '"${x}"'),
        ("lr:3\nwidth: 3", "a colon needs a space", "1:1", "`lr: 3`"),
        ("a: 1\nb:2\n", "a colon needs a space", "2:1", "`b: 2`"),
        ("a: [1,\nb: 3", "this '[' is never closed", "1:4", "add a ]"),
        ("a: {b: 1", "this '{' is never closed", "1:4", "add a }"),
        ("a:\n  b: [1,\n  c: 3\nd: 4\n", "expected ',' or ']' here", "4:2", "line 2, column 6"),
        ("a: 'x", "this quote is never closed", "1:4", "add a '"),
        ('a: "x\nb: 2', "this quote is never closed", "1:4", 'add a "'),
        ("a: 'it's'", "text after a closing quote", "1:8", "it''s"),
        ('a: "C:\\dir"', "bad escape", "1:8", "single quotes"),
        ('a: "\\U99999999"', "names no character", "1:2", "write \\\\"),
        ("a: @x", "cannot start with '@'", "1:4", "put quotes"),
        ("a: `x`", "cannot start with '`'", "1:4", "put quotes"),
        ("a: b: c", "a second ': ' in one line", "1:5", "put quotes"),
        ("a: 1\n  b: 2", "a key cannot stand here", "2:4", "same column"),
        ("foo\nbar: 1", "a key without a colon", "1:1", "`key: value`"),
        ("a b\n\n# note\nbar: 1", "a key without a colon", "1:1", "`key: value`"),
        ("a:\n  typ m\n  b: 1", "a key without a colon", "2:3", "`key: value`"),
        ("a: some\n  text\n  b: 1", "a key cannot stand here", "3:4", "same column"),
        ("a: 1\ntag brk\nc:\n  d: 1", "a key without a colon", "2:1", "`key: value`"),
        ("a:\n  b: 1\n  tag brk\nc: 1", "a key without a colon", "3:3", "`key: value`"),
        ("a:\n  b: 1\n c: 3", "wrong indentation", "3:2", "column 1, as in line 1"),
        ("- a\nb: 1", "wrong indentation", "2:1", "entries of a list"),
        ("a: b\n- c", "a list entry cannot stand here", "2:1", "indent it"),
        ("a: - b", "a list cannot start in the line", "1:4", "[a, b]"),
        ("a: {b: 1}}", "unexpected '}'", "1:10", "remove it"),
        ("a: ]", "a value is missing here", "1:4", "write one"),
        ("a: 1\nb\n", "a key without a colon", "2:1", "`key: value`"),
        ("a: \x01", "the character '\\x01'", "1:4", "delete it"),
        ("%FOO\n", "document start", "2:1", ""),
    ):
        first, where, *rest = message(text).split("\n")
        assert what in first, text
        assert where == f"  set in x.yaml:{place}", text
        assert hint in "\n".join(rest), text


def test_a_url_with_a_colon_is_no_missing_space() -> None:
    assert "space after" not in message("a: http://x\n  b: 1")
