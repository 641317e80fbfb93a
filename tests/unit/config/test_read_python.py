from __future__ import annotations

import argparse
import enum
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal.config.duration import Duration
from epochal.config.problems import Findings
from epochal.config.read_python import read_object, run_python
from epochal.config.source_file import SourceText
from epochal.errors import ConfigError

if TYPE_CHECKING:
    from epochal.config.node import Node


class Color(enum.Enum):
    RED = "red"


def run(path: Path) -> tuple[Node | None, Findings]:
    findings = Findings()
    return run_python(SourceText(str(path), path.read_text()), findings, layer="file"), findings


def test_wrapped_plain_values_are_unwrapped() -> None:
    findings = Findings()
    value = {
        "path": Path("a/b"),
        "color": Color.RED,
        "for": Duration(2, "h"),
        "pair": (1, 2),
        "inf": math.inf,
        3: "number",
        "inner": argparse.Namespace(x=1),
    }
    assert read_object(value, findings).to_plain() == {
        "path": "a/b",
        "color": "red",
        "for": "2h",
        "pair": [1, 2],
        "inf": math.inf,
        "3": "number",
        "inner": {"x": 1},
    }
    assert not findings.problems


def test_numpy_scalars_become_plain_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    value = {
        "a": numpy.float32(0.5),
        "b": numpy.int64(3),
        "c": numpy.float64(2.5),
        "d": numpy.bool_(True),
    }
    plain = read_object(value, Findings()).to_plain()
    assert repr(plain) == "{'a': 0.5, 'b': 3, 'c': 2.5, 'd': True}"


def test_an_argparse_namespace_is_a_config() -> None:
    node = read_object(argparse.Namespace(lr=0.1, optim=None), Findings())
    assert node.to_plain() == {"lr": 0.1, "optim": None}
    assert node.place.name == "an argparse namespace"


def test_an_omegaconf_object_is_a_config_with_its_references_kept() -> None:
    omegaconf = pytest.importorskip("omegaconf")
    value = omegaconf.OmegaConf.create({"a": 1, "b": {"c": "${a}"}, "d": [1, 2]})
    node = read_object(value, Findings())
    assert node.to_plain() == {"a": 1, "b": {"c": "${a}"}, "d": [1, 2]}
    assert node.place.name == "an OmegaConf config"


def test_omegaconf_below_a_dict_is_read_too() -> None:
    omegaconf = pytest.importorskip("omegaconf")
    value = {"model": omegaconf.OmegaConf.create({"width": 3})}
    assert read_object(value, Findings()).to_plain() == {"model": {"width": 3}}


def test_values_that_are_not_plain_are_reported() -> None:
    for value, message in (
        (object(), "plain value, got an object of object"),
        ({1, 2}, "got an object of set"),
        (2**70, "integer does not fit in 64 bits"),
        ("\ud800", "half of a surrogate pair"),
        (b"x", "got an object of bytes"),
        (len, "got an object of builtin_function_or_method"),
    ):
        findings = Findings()
        read_object({"a": [value]}, findings)
        (problem,) = findings.problems
        assert problem.key == "a.0", value
        assert message in problem.what, value
        assert findings.broken == {"a.0"}, value


def test_keys_that_read_the_same_are_reported() -> None:
    findings = Findings()
    read_object({1: "a", "1": "b"}, findings)
    assert findings.problems[0].what == "duplicate key '1'"


def test_a_dict_that_holds_itself_is_refused() -> None:
    loop: dict[str, object] = {}
    loop["self"] = loop
    with pytest.raises(ConfigError, match="more than 64 levels deep"):
        read_object(loop, Findings())


def test_too_many_values_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than 10,000 values"):
        read_object({"a": [0] * 10_000}, Findings())


def test_other_objects_are_no_config() -> None:
    with pytest.raises(TypeError, match=r"a config is a path, a mapping.*got int"):
        read_object(3, Findings())


def test_a_python_file_gives_its_config(write) -> None:
    write("neighbour_of_config.py", "WIDTH = 7")
    path = write(
        "c.py", "from neighbour_of_config import WIDTH\nconfig = {'model': {'width': WIDTH}}"
    )
    before = list(sys.path)
    try:
        node, findings = run(path)
    finally:
        sys.modules.pop("neighbour_of_config", None)
    assert not findings.problems
    assert node.to_plain() == {"model": {"width": 7}}
    assert node.mapping["model"].place.name == "c.py"
    assert sys.path == before


def test_what_a_python_file_does_wrong_is_reported(write) -> None:
    for code, what, place in (
        ("a = 1\nb = a / 0\n", "raised ZeroDivisionError: division by zero", "c.py:2:1"),
        ("def f():\n    raise KeyError('x')\nf()\n", "raised KeyError: 'x'", "c.py:2:5"),
        ("a = (\n", "raised SyntaxError", "c.py:1:1"),
        ("import sys\nsys.exit(3)", "raised SystemExit: 3", "c.py:2:1"),
        ("import json\njson.loads('{')", "raised JSONDecodeError", "c.py:2:1"),
        ("raise SystemExit", "raised SystemExit", "c.py:1:1"),
        ("config = 3", "sets no dict named 'config'", "None"),
        ("x = {}", "sets no dict named 'config'", "None"),
    ):
        node, findings = run(write("c.py", code))
        (problem,) = findings.problems
        assert node is None, code
        assert what in problem.what, code
        assert str(problem.place) == place, code
