from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from epochal.config import load
from epochal.config.override import parse_override
from epochal.config.problems import Findings
from epochal.config.scalar import escape

CONFIG = {"optim": {"lr": 1, "betas": [1, 2]}, "hooks": [{"type": "H", "patience": 1}], "tag": "x"}


def overridden(*overrides: str) -> Any:
    config = load(CONFIG, overrides=overrides)
    assert not config.problems, "\n".join(map(str, config.problems))
    return config.root.to_plain()


VALUES = [
    ("1e-3", 1e-3), ("12", 12), ("true", True), ("no", "no"), ("null", None), ("", None),
    ("$null", None), ("-$inf", -math.inf), ("-5", -5), ("a b", "a b"),
    ("note: a colon # and a hash", "note: a colon # and a hash"), ("x=y", "x=y"),
    ("-val/err", "-val/err"), ("'12'", "12"), ('"a\\nb"', "a\nb"),
    ("[1, a, {b: 2}]", [1, "a", {"b": 2}]), ("{a: 1}", {"a": 1}), ("!!str 5", "5"),
    ("$${x}", "${x}"), ("*", "*"), ("%5", "%5"), (" 3 ", 3),
]  # fmt: skip


def test_values_are_read() -> None:
    for value, result in VALUES:
        assert overridden(f"extra={value}")["extra"] == result


def test_list_elements_are_reached_by_number() -> None:
    assert overridden("hooks.0.patience=3", "optim.betas.1=5") == {
        "optim": {"lr": 1, "betas": [1, 5]},
        "hooks": [{"type": "H", "patience": 3}],
        "tag": "x",
    }


def test_overrides_apply_in_order() -> None:
    assert overridden("optim={lr: 5, eps: 1}", "optim.eps=2")["optim"] == {
        "lr": 5,
        "betas": [1, 2],
        "eps": 2,
    }


def test_type_aliases_are_read_in_overrides() -> None:
    assert overridden("hooks.0.NAME=G")["hooks"] == [{"type": "G", "patience": 1}]
    assert overridden("model={class_path: M, init_args: {x: 1}}")["model"] == {"type": "M", "x": 1}


def test_a_key_is_removed_by_delete() -> None:
    assert overridden("optim.lr=$delete")["optim"] == {"betas": [1, 2]}


def test_interpolations_work_in_overrides() -> None:
    assert overridden("tag=lr-${optim.lr}")["tag"] == "lr-1"


def test_an_override_knows_where_it_was_typed() -> None:
    root = load(CONFIG, overrides=["optim.betas=[10, 20]"]).root
    second = root.find("optim.betas.1")
    whole = root.find("optim.betas")
    place = second.place
    assert (second.layer, place.name, place.column, place.width) == (
        "command line",
        "command line",
        18,
        2,
    )
    assert whole.key_place.width == len("optim.betas")
    assert whole.place.text == "optim.betas=[10, 20]"
    assert whole.replaced is not None


def test_mistakes_are_reported() -> None:
    for override, what, hint in (
        ("lr", "an override sets a value, got 'lr'", "write lr=VALUE"),
        ("--lr", "an override sets a value, got '--lr'", "write lr=VALUE"),
        ("--optim.lr=3", "an override has no dashes", "write optim.lr=VALUE"),
        ("=3", "'' is not a path of keys", "section.key=VALUE"),
        ("a..b=3", "'a..b' is not a path of keys", "section.key=VALUE"),
        (".a=3", "'.a' is not a path of keys", "section.key=VALUE"),
        ("a b=3", "'a b' is not a path of keys", "section.key=VALUE"),
        ("", "an override sets a value", "write key=VALUE"),
        ("$BASE=x.yaml", "cannot be set on the command line", "in the file"),
        ("variants.a=1", "cannot be set on the command line", "in the file"),
        ("a." * 70 + "b=1", "is nested too deep", ""),
        ("tag.x=3", "tag is 'x' and has no key 'x'", ""),
        ("hooks.3.x=3", "hooks is a list of 1 and has no element '3'", "from 0 to 0"),
        ("optim.lrr=$delete", "nothing to delete", "did you mean 'lr'?"),
        ("a=99999999999999999999", "integer does not fit in 64 bits", ""),
        ("a={x: ${tag}}", "must be quoted", '"${tag}"'),
        ("a=[1, 2", "this '[' is never closed", "add a ]"),
        ('tag="a" b', "expected '<document start>'", "quotes around the whole value"),
        ("a={b: 1, b: 2}", "duplicate key", "keep one"),
        ("a=!!python/name:os.system x", "is not read", "plain value"),
        ("a=${b}", "refers to 'b', which is not set", ""),
    ):
        config = load(CONFIG, overrides=[override])
        (problem,) = config.problems
        assert what in problem.what, override
        assert hint in problem.hint, override
        assert problem.place.name == "command line", override


def test_a_mistake_is_underlined() -> None:
    (problem,) = load(CONFIG, overrides=["optim.x={a: ${b}}"]).problems
    assert str(problem).startswith(
        "optim.x: an interpolation inside { } or [ ] must be quoted\n"
        "  set on the command line\n"
        "    optim.x={a: ${b}}\n"
        "                ^^^^\n"
    )


def test_the_last_override_of_a_key_wins() -> None:
    config = load(CONFIG, overrides=["optim.lr=2", "optim.lr=3"])
    assert not config.problems
    assert config.root.to_plain()["optim"]["lr"] == 3


def test_every_mistake_is_reported_at_once() -> None:
    config = load(CONFIG, overrides=["lr", "tag.x=1", "optim.lr=5", "=3"])
    assert len(config.problems) == 3
    assert config.root.to_plain()["optim"]["lr"] == 5


def test_a_key_that_a_missing_base_may_set_is_not_reported() -> None:
    config = load({"$BASE": "nope.yaml"}, overrides=["optim.lr=$delete"])
    assert [problem.key for problem in config.problems] == ["$BASE"]


def test_line_ends_in_an_override_do_not_matter() -> None:
    assert overridden("tag=a\nb")["tag"] == "a b"
    assert overridden("extra=[1,\r\n2]")["extra"] == [1, 2]


def test_too_many_values_are_a_problem() -> None:
    config = load(CONFIG, overrides=["a=[" + "1," * 6000 + "]", "b=[" + "1," * 6000 + "]"])
    (problem,) = config.problems
    assert "too big or too deep" in problem.what
    assert config.broken == {""}


def escaped(value: Any) -> Any:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, dict):
        return {key: escaped(child) for key, child in value.items()}
    return [escaped(child) for child in value] if isinstance(value, list) else value


keys = st.text(alphabet="abcxyz_-", min_size=1, max_size=6)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(
        st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff\ufffe\uffff")
    ),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(keys, children, max_size=3),
    max_leaves=8,
)


@given(st.lists(keys, min_size=1, max_size=4), values)
def test_any_value_can_be_set(parts, value) -> None:
    path = ".".join(["extra", *parts])
    written = json.dumps(escaped(value), ensure_ascii=False)
    config = load({}, overrides=[f"{path}={written}"])
    assert not config.problems
    node = config.root.find(path)
    assert repr(node.to_plain()) == repr(value)


@given(st.text(max_size=30))
def test_no_text_raises_an_exception(text) -> None:
    findings = Findings()
    assert (parse_override(text, findings) is None) == bool(findings.problems)
    assert load({"a": 1}, overrides=[text]) is not None
