from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from epochal.check import convert_value
from epochal.config import Duration, Node, from_plain

SPEC = {"type": "torch.nn.ReLU"}


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
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
    ],
)
def test_values_become_what_the_type_names(annotation: str, value: Any, expected: Any) -> None:
    for given in (value, from_plain(value)):
        made = convert_value(given, annotation)
        assert made == expected
        assert type(made) is type(expected)


def test_other_layers_say_how_their_types_are_made() -> None:
    makers = {"every": lambda text: ("every", text), "callable": lambda text: ("code", text)}
    assert convert_value("50st", "Every", makers=makers) == ("every", "50st")
    assert convert_value({"val": 0}, "Every | dict[str, Every]", makers=makers) == {
        "val": ("every", 0)
    }
    assert convert_value("a.f", "Callable[[int], int] | None", makers=makers) == ("code", "a.f")
    assert convert_value("50st", "Every") == "50st"


def test_specs_inside_a_value_are_built_where_they_stand() -> None:
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
