from __future__ import annotations

from pathlib import Path

import pytest

from epochal.check import build_arguments, convert_value, read_spec
from epochal.config import Duration, Node, from_plain
from epochal.errors import ConfigError, UnknownComponentError


def test_the_keys_of_a_spec_are_split_by_owner(user_registry) -> None:
    node = from_plain({"type": "AdamW", "lr": 1e-3, "clip": 1.0, "accumulate": 2})
    spec = read_spec(node, user_registry, section="optim")
    assert (spec.path, spec.factory.dotted) == ("optim", "torch.optim.adamw.AdamW")
    assert spec.arguments.keys() == {"lr"}
    assert spec.options.keys() == {"clip", "accumulate"}
    assert spec.section_signature.get("clip") is not None


def test_a_key_of_the_section_wins_over_an_argument_of_the_same_name(write_files) -> None:
    from epochal.registry import Project, Registry

    registry = Registry(
        Project(write_files({"m.py": "class H:\n  def __init__(self, every=1): ..."}))
    )
    spec = read_spec(from_plain({"type": "m.H", "every": "1ep"}), registry, section="hooks")
    assert (dict(spec.arguments), spec.options.keys()) == ({}, {"every"})


def test_arguments_are_converted_and_nested_specs_built(user_registry) -> None:
    node = from_plain(
        {
            "type": "user.model.Mlp",
            "classes": 3,
            "act": {"type": "torch.nn.ReLU"},
            "dtype": "float64",
        }
    )
    spec = read_spec(node, user_registry, section="model")

    def build(child: Node, path: str) -> str:
        inner = read_spec(child, user_registry, path=path)
        return f"{inner.path}: {inner.factory.qualname}"

    made = build_arguments(spec.arguments, spec.signature, build=build, path=spec.path)
    assert (made.positional, made.keyword) == ((), {"classes": 3, "act": "model.act: ReLU"})
    kept = build_arguments(spec.arguments, spec.signature).keyword
    assert isinstance(kept["act"], Node)


def test_arguments_get_the_names_of_the_factory(signature_of) -> None:
    signature = signature_of("def f(for_: float, **rest): ...", "f")
    values = from_plain({"for": 1, "other": [1]}).mapping
    assert build_arguments(values, signature).keyword == {"for_": 1.0, "other": [1]}


def test_lists_become_the_tuples_of_an_optimizer(user_registry) -> None:
    spec = read_spec(
        from_plain({"type": "AdamW", "betas": [0, 0.9]}), user_registry, section="optim"
    )
    assert build_arguments(spec.arguments, spec.signature).keyword == {"betas": (0.0, 0.9)}


def test_a_bare_name_is_a_spec(user_registry) -> None:
    assert read_spec(from_plain("cosine"), user_registry, section="schedule").arguments == {}


def test_a_value_that_is_no_spec_is_refused(user_registry) -> None:
    with pytest.raises(ConfigError, match="model: has no type"):
        read_spec(from_plain({"width": 3}), user_registry, section="model")
    node = from_plain({"type": "EarlyStoping"})
    with pytest.raises(UnknownComponentError, match=r"hooks\.0\.type: unknown hook 'EarlyStoping'"):
        read_spec(node, user_registry, section="hooks", path="hooks.0")


def test_positional_only_arguments_are_passed_by_position(signature_of) -> None:
    for signature, values, positional, keyword in (
        ("*layers", {"layers": [1, 2]}, (1, 2), {}),
        ("*layers", {"layers": []}, (), {}),
        ("*layers", {}, (), {}),
        ("*sizes: float", {"sizes": [1]}, (1.0,), {}),
        ("a, b=5, *layers", {"a": 1, "layers": [2]}, (1, 5, 2), {}),
        ("a, b=5, *layers", {"a": 1}, (), {"a": 1}),
        (
            "a, *layers, c=1, **rest",
            {"a": 1, "layers": [2], "c": 3, "d": 4},
            (1, 2),
            {"c": 3, "d": 4},
        ),
        ("a, b=2, /, c=3", {"a": 1}, (1,), {}),
        ("a, b=2, /, c=3", {"a": 1, "c": 4}, (1,), {"c": 4}),
        ("a=1, b=2, /", {"b": 3}, (1, 3), {}),
    ):
        made = build_arguments(
            from_plain(values).mapping, signature_of(f"def f({signature}): ...", "f")
        )
        assert (made.positional, made.keyword) == (positional, keyword)


def test_a_missing_value_before_positional_values_is_refused(signature_of) -> None:
    signature = signature_of("def f(a, b=make(), *layers): ...", "f")
    values = from_plain({"a": 1, "layers": [2]}).mapping
    with pytest.raises(ConfigError, match=r"model\.b: missing; m\.f takes it by position"):
        build_arguments(values, signature, path="model")


SPEC = {"type": "torch.nn.ReLU"}


def test_values_are_converted_to_their_type() -> None:
    for annotation, value, expected in (
        ("float", 3, 3.0),
        ("float | None", 3, 3.0),
        ("float | None", None, None),
        ("int | float", 3, 3),
        ("tuple[float | Tensor, float | Tensor]", [1, 0.999], (1.0, 0.999)),
        ("tuple[str, ...]", ["a"], ("a",)),
        ("tuple", [1], (1,)),
        ("list[float]", [1], [1.0]),
        ("set[int]", [1, 1], {1}),
        ("dict[str, float]", {"a": 1}, {"a": 1.0}),
        ("Path", "runs", Path("runs")),
        ("Duration", "2h", Duration(2, "h")),
        ("int | Duration", 500, 500),
        ("int | Duration", "1ep", Duration(1, "ep")),
        ("Any", [1, {"a": (2,)}], [1, {"a": [2]}]),
        ("", True, True),
    ):
        for given in (value, from_plain(value)):
            made = convert_value(given, annotation)
            assert made == expected
            assert type(made) is type(expected)


def test_callers_can_pass_constructors_of_types() -> None:
    makers = {"every": lambda text: ("every", text), "callable": lambda text: ("code", text)}
    assert convert_value("50st", "Every", makers=makers) == ("every", "50st")
    assert convert_value({"val": 0}, "Every | dict[str, Every]", makers=makers) == {
        "val": ("every", 0)
    }
    assert convert_value("a.f", "Callable[[int], int] | None", makers=makers) == ("code", "a.f")
    assert convert_value("50st", "Every") == "50st"


def test_specs_inside_a_value_are_built_with_their_paths() -> None:
    seen = []

    def build(node: Node, path: str) -> str:
        seen.append(path)
        return f"built {node.mapping['type'].value}"

    made = convert_value(
        {"a": [SPEC, 1], "b": SPEC}, "dict[str, Any]", build=build, path="task.parts"
    )
    assert made == {"a": ["built torch.nn.ReLU", 1], "b": "built torch.nn.ReLU"}
    assert seen == ["task.parts.a.0", "task.parts.b"]


def test_without_a_builder_specs_stay_nodes() -> None:
    assert isinstance(convert_value(SPEC, "nn.Module"), Node)
