from __future__ import annotations

import math
import tomllib
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from epochal.config.problems import Findings
from epochal.config.read_toml import read_toml
from epochal.config.source_file import SourceText

if TYPE_CHECKING:
    from epochal.config.node import Node


def read(text: str) -> tuple[Node | None, Findings]:
    findings = Findings()
    return read_toml(SourceText("x.toml", text), findings, layer="file"), findings


def test_a_config_is_read_with_places() -> None:
    node, findings = read(
        'tag = "x"\n[optim]\nlr = 5e-4\nbetas = [0.9, 0.99]\n[[hooks]]\ntype = "A"\n'
    )
    assert not findings.problems
    assert node.to_plain() == {
        "tag": "x",
        "optim": {"lr": 5e-4, "betas": [0.9, 0.99]},
        "hooks": [{"type": "A"}],
    }
    second, hook = node.find("optim.betas.1"), node.find("hooks.0.type")
    assert (str(second.place), second.place.width) == ("x.toml:4:15", 4)
    assert (str(hook.key_place), hook.key_place.width) == ("x.toml:6:1", 4)


def test_dates_are_the_text_that_yaml_would_give() -> None:
    node, _ = read("a = 2020-01-01\nb = 2020-01-01 10:00:00\nc = 07:32:00\n")
    assert node.to_plain() == {"a": "2020-01-01", "b": "2020-01-01 10:00:00", "c": "07:32:00"}


def test_own_infinities_are_read() -> None:
    node, _ = read("a = inf\nb = -inf\nc = +inf\nd = nan\n")
    values = node.to_plain()
    assert (values["a"], values["b"], values["c"]) == (math.inf, -math.inf, math.inf)
    assert math.isnan(values["d"])


def test_a_mistake_is_named_and_placed() -> None:
    for text, what, place, hint in (
        ("a = foo", "this is no TOML value", "1:5", '"foo"'),
        ("a = ${x}", "this is no TOML value", "1:5", '"${x}"'),
        ("a = None", "this is no TOML value", "1:5", '"$null"'),
        ("a = null", "this is no TOML value", "1:5", '"$null"'),
        ("a = True", "this is no TOML value", "1:5", "write true"),
        ("a = .5", "this is no TOML value", "1:5", "write 0.5"),
        ("x = 1\na: 1", "expected '='", "2:2", "`key = value`"),
        ("a = {\n b = 1 }", "key part", "1:6", "stands on one line"),
        ("a = [1, 2", "unclosed array", "1:10", "add a comma or a ]"),
        ("a = 'x", "this quote is never closed", "1:5", "same kind"),
        ('a = "x\nb = 1', "this quote is never closed", "1:5", "same kind"),
        ('a = """x', "this quote is never closed", "1:5", "same kind"),
        ('a = "C:\\dir"', "unescaped", "1:10", "'single quotes'"),
        ("$BASE = 'x'", "invalid statement", "1:1", '"$BASE"'),
        ("= 1", "invalid statement", "1:1", "`key = value`"),
        ("[a", "table declaration", "1:3", "[section]"),
        ("a = 01", "expected newline", "1:6", "leading zeros"),
        ("a = " + "9" * 5000, "too many digits", "1:5", ""),
    ):
        node, findings = read(text)
        (problem,) = findings.problems
        assert node is None, text
        assert what in problem.what, text
        assert str(problem.place) == f"x.toml:{place}", text
        assert hint in problem.hint, text


def test_a_duplicate_key_names_the_first_place() -> None:
    for text, key, place in (
        ("[optim]\nlr = 1\nlr = 2", "optim.lr", "3:1"),
        ("[a]\nx = 1\n[a]\ny = 1", "a", "3:2"),
        ("[[a]]\nb = 1\n[a]\nb = 2", "a", "3:2"),
    ):
        _, findings = read(text)
        (problem,) = findings.problems
        assert problem.key == key, text
        assert problem.what == f"duplicate key {key.split('.')[-1]!r}", text
        assert str(problem.place) == f"x.toml:{place}", text
        assert "first set in line" in problem.hint, text


def test_values_that_cannot_be_kept_are_reported() -> None:
    for value, message in (
        ("99999999999999999999", "integer does not fit in 64 bits, got 9999"),
        ("-1e999", "number is too big for a float, got -1e999"),
    ):
        _, findings = read(f"[a]\nb = {value}")
        (problem,) = findings.problems
        assert (problem.key, str(problem.place)) == ("a.b", "x.toml:2:5"), value
        assert message in problem.what, value
        assert findings.broken == {"a.b"}, value


@given(st.text(alphabet="ab.=[]{}\"'#\n ,1", max_size=30))
def test_what_the_standard_library_reads_is_read_with_a_place_for_each_value(text: str) -> None:
    node, findings = read(text)
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assert node is None
        assert len(findings.problems) == 1
        return
    assert node.to_plain() == expected
    assert all(leaf.place.line for path, leaf in node.iter_leaves() if path)
