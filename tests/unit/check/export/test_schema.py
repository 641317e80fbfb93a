from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from epochal.check import json_schema
from epochal.check.export.schema import type_schema
from epochal.check.values.types import parse_type
from epochal.errors import UnknownComponentError
from epochal.registry import Project, Registry

ROOT = Path(__file__).parents[4]
EXAMPLES = sorted(
    [*(ROOT / "examples").glob("*/*.yaml"), *(ROOT / "examples/digits").glob("d*.toml")]
)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema(Project(ROOT / "examples"))


@pytest.fixture(scope="module")
def validator(schema) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(schema)


def read(path: Path) -> Any:
    if path.suffix == ".toml":
        return tomllib.loads(path.read_text(encoding="utf-8"))
    return YAML(typ="safe", pure=True).load(path)


def test_the_schema_is_valid_draft_07(schema) -> None:
    jsonschema.Draft7Validator.check_schema(schema)
    assert schema["$schema"].startswith("http://json-schema.org/draft-07")
    assert any("." in name for name in offered(schema, "model"))  # also classes of a project


def test_the_shipped_examples_are_accepted(validator) -> None:
    for path in EXAMPLES:
        assert list(validator.iter_errors(read(path))) == [], path


GOOD = {
    "$BASE": ["a.yaml", {"model": "b.yaml"}],
    "task": "a.b.C",
    "model": {"type": "a.b.C", "anything": 1, "dtype": "float64"},
    "data": {"train": {"type": "a.D", "batch_size": 8}, "dev": {"x": {"type": "a.D"}}},
    "optim": {"type": "adamw", "lr": "${extra.lr}", "betas": [0.9, 0.99], "clip": "$null"},
    "schedule": "cosine",
    "metrics": [{"type": "accuracy", "name": "top1", "on": ["val"]}],
    "monitor": {"metric": "val/acc", "mode": "max"},
    "train": {"for": "1e6sa", "eval_every": {"val": "1ep", "test": 0}},
    "hooks": ["Console", {"type": "EarlyStopping", "patience": 3, "every": "2ep"}],
    "extra": {"lr": 1},
    "variants": {"wide": {"model.width": 3}},
    "sweep": {},
}

WRONG: list[tuple[str, Any]] = [
    ("trian", {}),
    ("seed", "x"),
    ("train", {"fro": "1ep"}),
    ("train", {"for": "10epochs"}),
    ("optim", {"type": "AdamW", "weight_dacay": 1}),
    ("optim", {"type": "AdamW", "betas": [0.9]}),
    ("optim", {"type": "AdamW", "clip": "high"}),
    ("optim", {"type": "adamww"}),
    ("hooks", [{"type": "EarlyStopping", "patiense": 1}]),
    ("hooks", {"type": "Console"}),
    ("metrics", [{"type": "acuracy"}]),
    ("model", {"type": "a.b.C", "dtype": "float31"}),
    ("model", {"type": "../x"}),
    ("data", {"trian": {"type": "a.D"}}),
    ("data", {"train": {"type": "a.D", "batch_size": "x"}}),
    ("monitor", {"metrik": "x"}),
    ("monitor", 3),
    ("env", "HOME"),
]


def test_every_form_that_configs_may_take_is_accepted(validator) -> None:
    assert list(validator.iter_errors(GOOD)) == []


def test_mistakes_that_a_schema_can_express_are_refused(validator) -> None:
    for section, value in WRONG:
        config = copy.deepcopy(GOOD)
        config[section] = value
        assert list(validator.iter_errors(config)) != [], section


def test_every_option_is_described(schema) -> None:
    def options(node: Any) -> Any:
        if isinstance(node, dict):
            for name, option in node.get("properties", {}).items():
                if isinstance(option, dict) and "$ref" not in option and "const" not in option:
                    yield name, option
            for child in node.values():
                yield from options(child)
        elif isinstance(node, list):
            for child in node:
                yield from options(child)

    bare = [name for name, option in options(schema) if "description" not in option]
    assert set(bare) <= {"type"}


def test_the_schema_includes_registered_components(write_files) -> None:
    text = (
        "import epochal as ep\n@ep.register('model')\nclass Net:\n  def __init__(self, a: int): ..."
    )
    project = Project(write_files({"pkg/deep/parts.py": text}))
    for source in (project, Registry(project), Registry(project, ("pkg.deep.parts",))):
        validator = jsonschema.Draft7Validator(json_schema(source))
        assert list(validator.iter_errors({"model": {"type": "Net", "a": 1}})) == []
        assert list(validator.iter_errors({"model": {"type": "Net", "b": 1}})) != []


PARTS = """
from __future__ import annotations
from torch import nn
from torch.utils.data import Dataset
import epochal as ep

class Net(nn.Module):
    '''A small network.

    Args:
        width: Units of each layer.
    '''
    def __init__(self, width: int, *, act: nn.Module | None = None) -> None: ...

class Rows(Dataset):
    def __init__(self, path: str = "x") -> None: ...

class Shout(ep.Hook):
    def __init__(self, loud: bool = True) -> None: ...

class _Hidden(nn.Module): ...

def make(width: int = 3): ...
def main() -> None: ...
"""


def offered(schema: dict[str, Any], kind: str) -> dict[str, str]:
    chosen = schema["definitions"][kind]["else"]["properties"]["type"]["anyOf"][0]
    return dict(zip(chosen["enum"], chosen["enumDescriptions"], strict=True))


def own_schema(write_files) -> dict[str, Any]:
    files = {"shop/__init__.py": "from shop.parts import Net", "shop/parts.py": PARTS}
    return json_schema(Project(write_files(files | {"tests/fakes.py": "class Fake: ..."})))


def test_classes_of_the_project_are_offered_where_their_bases_fit(write_files) -> None:
    schema = own_schema(write_files)
    assert offered(schema, "model") == {
        "shop.parts.Net": "A small network.",
        "shop.parts.make": "",
    }
    assert {"file", "shop.parts.Rows", "shop.parts.make"} == {*offered(schema, "data")}
    assert {name for name in offered(schema, "hook") if "." in name} == {"shop.parts.Shout"}
    assert not [name for name in offered(schema, "optimizer") if "." in name]


def test_arguments_of_the_projects_classes_are_checked(write_files) -> None:
    validator = jsonschema.Draft7Validator(own_schema(write_files))
    rows: list[tuple[dict[str, Any], str]] = [
        ({"model": {"type": "shop.parts.Net", "width": 3, "dtype": "float64"}}, ""),
        ({"model": {"type": "shop.Net", "width": "${extra.width}"}}, ""),
        ({"model": {"type": "shop.parts.Net", "depth": "$delete"}}, ""),
        ({"model": {"type": "shop.parts.Net", "act": {"type": "torch.nn.ReLU"}}}, ""),
        ({"model": {"type": "shop.elsewhere.Net", "anything": 3}}, ""),
        ({"model": {"type": "shop.parts.Net", "widht": 3}}, "'widht' was unexpected"),
        ({"model": {"type": "shop.Net", "widht": 3}}, "'widht' was unexpected"),
        ({"model": {"type": "shop.parts.Net", "width": "wide"}}, "not of type 'integer'"),
        (
            {"model": {"type": "shop.parts.Net", "act": {"type": "shop.parts.Net", "widht": 1}}},
            "'widht' was unexpected",
        ),
        ({"data": {"train": {"type": "shop.parts.Rows", "pth": "x"}}}, "'pth' was unexpected"),
        ({"hooks": [{"type": "shop.parts.Shout", "lod": True}]}, "'lod' was unexpected"),
        ({"variants": {"a": {"model": {"type": "shop.Net", "widht": 3}}}}, "'widht'"),
    ]
    for config, wanted in rows:
        messages = [error.message for error in validator.iter_errors(config)]
        assert bool(messages) == bool(wanted), (config, messages)
        assert wanted in "".join(messages), (config, messages)


def test_one_component_or_section_has_a_schema(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    hook = json_schema(None, "EarlyStopping")
    assert hook["required"] == ["patience"]
    assert set(hook["definitions"]) == {"special", "base", "spec"}
    assert json_schema(None, "torch.optim.AdamW")["required"] == []
    assert json_schema(None, "torch.optim.lr_scheduler.StepLR")["required"] == ["step_size"]
    validator = jsonschema.Draft7Validator(json_schema(None, "train"))
    assert list(validator.iter_errors({"for": "10"})) != []
    with pytest.raises(UnknownComponentError, match="did you mean 'EarlyStopping'"):
        json_schema(None, "EarlyStoping")


def test_bounds_are_part_of_the_schema(validator) -> None:
    for section in (
        {"train": {"sanity_batches": -1}},
        {"engine": {"num_threads": 0}},
        {"log": {"level": "loud"}},
        {"optim": {"type": "AdamW", "clip": 0}},
        {"data": {"train": {"type": "a.D", "batch_size": 0}}},
    ):
        assert list(validator.iter_errors(section))


def test_bounds_become_keywords_of_the_schema() -> None:
    wanted = parse_type("Annotated[int, AtLeast(1), Below(9)] | None")
    assert type_schema(wanted) == {
        "anyOf": [{"type": "integer", "minimum": 1, "exclusiveMaximum": 9}, {"type": "null"}]
    }
