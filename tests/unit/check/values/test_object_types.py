from __future__ import annotations

from epochal.check.values.checker import ConfigChecker
from epochal.config import from_plain
from epochal.config.scalar import show
from epochal.registry import Project, Registry

MODULE = """
    from __future__ import annotations
    import enum
    import numbers
    from abc import ABC
    from dataclasses import dataclass
    from pathlib import Path, PurePosixPath
    from typing import Any, Generic, NamedTuple, NewType, Optional, Protocol, TypedDict
    from typing import TypeVar, Union
    import numpy as np
    import torch
    from epochal.config import Duration
    from torch import Tensor, nn
    import torch.nn as nnn
    from torch.nn import Module as Net
    from kinds import Color, Own, Size, Missing

    T = TypeVar("T")
    Name = NewType("Name", str)
    Alias = Union[int, str]
    Layer = nn.Module
    class Named(Protocol): ...
    class Text(str): ...
    class Number(float): ...
    class Folder(Path): ...
    class Point(NamedTuple):
        x: int
    class Table(TypedDict):
        x: int
    class Meta(type): ...
    class Odd(metaclass=Meta): ...
    class Open(ABC): ...
    class Base(Generic[T]): ...
    class Block(Base[int], nn.Module): ...
    @dataclass
    class Options:
        a: int = 1
"""
KINDS = """
    from enum import Enum
    class Color(Enum):
        red = 1
    class Own: ...
    class Size(Enum): ...
"""


def problems(write_files, annotation: str, value: object, default: str = "") -> list[tuple]:
    text = f"{MODULE}\n    class A:\n        def __init__(self, x: {annotation}{default}): ..."
    folder = write_files({"m.py": text, "kinds.py": KINDS})
    checker = ConfigChecker(Registry(Project(folder)))
    checker.spec("model", from_plain({"type": "m.A", "x": value}), "model")
    return [(problem.key, problem.what, problem.hint) for problem in checker.problems]


ANY = "write {type: package.module.Class}"


def test_a_plain_value_cannot_be_an_object(write_files) -> None:
    for annotation, value, wanted, hint in (
        ("nn.Module", "Tanh", "torch.nn.Module", "write {type: torch.nn.Tanh}"),
        ("nnn.Module", "Tanh", "torch.nn.Module", "write {type: torch.nn.Tanh}"),
        ("nn.Module", "torch.nn.Tanh", "torch.nn.Module", "write {type: torch.nn.Tanh}"),
        ("nn.Module", "nothing at all", "torch.nn.Module", ANY),
        ("nn.Module | None", 3, "torch.nn.Module", ANY),
        ("'nn.Module | None'", True, "torch.nn.Module", ANY),
        ("Optional[Net]", "ReLU", "torch.nn.Module", "write {type: torch.nn.ReLU}"),
        ("Union[nn.Module, Own, None]", 0.5, "torch.nn.Module", ANY),
        ("Layer", "Tanh", "torch.nn.Module", "write {type: torch.nn.Tanh}"),
        ("Own", "x", "kinds.Own", ANY),
        ("Own", "Own", "kinds.Own", "write {type: kinds.Own}"),
        ("Options", 3, "m.Options", ANY),
        ("Block", 3, "m.Block", ANY),
        (
            "torch.dtype",
            "float16",
            "torch.dtype",
            "annotate it as str and use getattr(torch, dtype)",
        ),
        ("torch.dtype | None", "float16", "torch.dtype", "annotate it as str"),
    ):
        ((key, what, given),) = problems(write_files, annotation, value)
        assert key == "model.x", annotation
        assert what == f"expected an object of {wanted}, got {show(value)} (argument 'x' of m.A)"
        assert given.startswith(hint)


def test_a_mapping_without_type_cannot_be_an_object(write_files) -> None:
    what = "expected an object of {}, got a mapping without type (argument 'x' of m.A)"
    for annotation, value, key, wanted in (
        ("nn.Module | None", {"width": 3}, "model.x", "torch.nn.Module"),
        ("nn.Module", {}, "model.x", "torch.nn.Module"),
        ("Options", {"a": 1}, "model.x", "m.Options"),
        ("list[nn.Module] | None", [{"width": 3}], "model.x.0", "torch.nn.Module"),
    ):
        found = problems(write_files, annotation, value)
        assert found == [(key, what.format(wanted), "add type: package.module.Class")], annotation


def test_plain_values_that_may_fit_are_accepted(write_files) -> None:
    for annotation, value in (
        ("nn.Module", {"type": "torch.nn.Tanh"}),
        ("nn.Module | None", None),
        ("nn.Module | str", "relu"),
        ("nn.Module | Missing", 3),
        ("nn.Module | Any", 3),
        ("Color", "red"),
        ("Color", 1),
        ("Size | Own", 1),
        ("Text", "x"),
        ("Number", 1.5),
        ("Folder", "runs"),
        ("PurePosixPath", "runs"),
        ("Named", "x"),
        ("Name", "x"),
        ("Alias", "x"),
        ("T", "x"),
        ("Point", 3),
        ("Table", 3),
        ("Odd", 3),
        ("Open", 3),
        ("numbers.Number", 3),
        ("np.ndarray", 3),
        ("np.float32", 3),
        ("Tensor", 3),
        ("torch.device", "cpu"),
        ("Duration", "3ep"),
        ("Missing", 3),
        ("unknown.Thing", 3),
        ("Base[int]", 3),
        ("Any", 3),
        ("'not a type ('", 3),
        ("list[nn.Module]", []),
        ("dict[str, nn.Module]", {}),
        ("nn.Module | dict[str, int]", {"a": 3}),
        ("Table", {"x": 3}),
        ("nn.Module", {"first": {"type": "torch.nn.Tanh"}}),
    ):
        assert problems(write_files, annotation, value) == []


def test_plain_values_are_accepted_if_the_default_is_one(write_files) -> None:
    assert problems(write_files, "nn.Module", "gelu", " = 'relu'") == []
    assert len(problems(write_files, "nn.Module", "gelu", " = None")) == 1
    assert len(problems(write_files, "nn.Module", "gelu", " = nn.ReLU()")) == 1


def test_each_element_of_a_list_is_checked(write_files) -> None:
    for annotation in ("list[nn.Module]", "Sequence[nn.Module | None]"):
        found = problems(write_files, annotation, [{"type": "torch.nn.Tanh"}, "Tanh", None])
        assert [(key, hint) for key, _, hint in found] == [
            ("model.x.1", "write {type: torch.nn.Tanh}")
        ], annotation


def test_positional_values_are_checked(write_files) -> None:
    text = "from torch import nn\nclass A:\n    def __init__(self, *parts: nn.Module): ..."
    checker = ConfigChecker(Registry(Project(write_files({"m.py": text}))))
    checker.spec("model", from_plain({"type": "m.A", "parts": ["Tanh"]}), "model")
    (problem,) = checker.problems
    assert (problem.key, problem.hint) == ("model.parts.0", "write {type: torch.nn.Tanh}")
