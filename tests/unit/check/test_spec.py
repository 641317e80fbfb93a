from __future__ import annotations

import pytest

from epochal.check import arguments, read_spec
from epochal.config import Node, from_plain
from epochal.errors import ConfigError, UnknownComponentError


def test_the_keys_of_a_spec_are_parted_by_owner(user_registry) -> None:
    node = from_plain({"type": "AdamW", "lr": 1e-3, "clip": 1.0, "accumulate": 2})
    spec = read_spec(node, user_registry, section="optim")
    assert (spec.path, spec.factory.dotted) == ("optim", "torch.optim.adamw.AdamW")
    assert spec.arguments.keys() == {"lr"}
    assert spec.options.keys() == {"clip", "accumulate"}
    assert spec.own_signature.get("clip") is not None


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

    made = arguments(spec.arguments, spec.signature, build=build, path=spec.path)
    assert made == {"classes": 3, "act": "model.act: ReLU"}
    kept = arguments(spec.arguments, spec.signature)
    assert isinstance(kept["act"], Node)


def test_arguments_get_the_name_that_the_factory_uses(signature_of) -> None:
    signature = signature_of("def f(for_: float, **rest): ...", "f")
    values = from_plain({"for": 1, "other": [1]}).mapping
    assert arguments(values, signature) == {"for_": 1.0, "other": [1]}


def test_lists_become_the_tuples_that_an_optimizer_wants(user_registry) -> None:
    spec = read_spec(
        from_plain({"type": "AdamW", "betas": [0, 0.9]}), user_registry, section="optim"
    )
    assert arguments(spec.arguments, spec.signature) == {"betas": (0.0, 0.9)}


def test_a_bare_name_is_a_spec(user_registry) -> None:
    assert read_spec(from_plain("cosine"), user_registry, section="schedule").arguments == {}


def test_what_is_no_spec_is_refused(user_registry) -> None:
    with pytest.raises(ConfigError, match="model: has no type"):
        read_spec(from_plain({"width": 3}), user_registry, section="model")
    node = from_plain({"type": "EarlyStoping"})
    with pytest.raises(UnknownComponentError, match=r"hooks\.0\.type: unknown hook 'EarlyStoping'"):
        read_spec(node, user_registry, section="hooks", path="hooks.0")
