"""Writing a config as YAML, TOML or JSON, such that reading gives the same values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from epochal.config.interpolate import ENV_OPENING
from epochal.config.node import Node, Plain, Scalar
from epochal.config.scalar import escape

FORMATS = ("yaml", "toml", "json")


def dump(tree: Node | Plain, format: str = "yaml") -> str:
    """The text of a config in the given format.

    Values that came from the environment are written as the ``${env:NAME}`` they came from.
    """
    plain = _spell(tree, format)
    if format == "json":
        return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if format == "toml":
        from epochal.config.write_toml import write_toml

        return write_toml(plain)
    if format == "yaml":
        from epochal.config.write_yaml import write_yaml

        return write_yaml(plain)
    raise ValueError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")


def _spell(tree: Node | Plain, format: str) -> Plain:
    """The plain tree with words in place of what the format cannot say."""
    if isinstance(tree, Node):
        if tree.template is not None and ENV_OPENING in tree.template:
            return tree.template
        tree = tree.value
    if isinstance(tree, Mapping):
        return {str(key): _spell(child, format) for key, child in tree.items()}
    if isinstance(tree, list | tuple):
        return [_spell(child, format) for child in tree]
    return escape(tree) if isinstance(tree, str) else _spell_scalar(tree, format)


def _spell_scalar(value: Scalar, format: str) -> Scalar:
    if value is None and format == "toml":
        return "$null"
    if format == "json" and isinstance(value, float) and not math.isfinite(value):
        return "$nan" if math.isnan(value) else "$inf" if value > 0 else "-$inf"
    return value
