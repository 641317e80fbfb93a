"""Config values as the Python values that written types name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from epochal.check.literals import Plain
from epochal.check.types import ANY, Type, fits, is_spec, parse_type
from epochal.config.condition import parse_condition
from epochal.config.duration import parse_duration
from epochal.config.node import Node, from_plain

Maker = Callable[[Plain], Plain]
Build = Callable[[Node, str], Plain]

_MAKERS: dict[str, Maker] = {
    "duration": parse_duration,
    "condition": parse_condition,
    "path": Path,
}


def convert(
    value: Plain,
    annotation: str,
    *,
    makers: Mapping[str, Maker] | None = None,
    build: Build | None = None,
    path: str = "",
) -> Plain:
    """A config value as the type that ``annotation`` names.

    Lists become tuples where the type says so, whole numbers floats, texts paths and durations.

    Args:
        value: Something that ``problem_with`` found nothing wrong with.
        annotation: The type as written.
        makers: How to make values of further types, by name: ``{"every": Every.parse}``.
        build: Makes the object of a spec inside the value; without it specs stay nodes.
        path: Where the value stands in the config; ``build`` is told.
    """
    node = value if isinstance(value, Node) else from_plain(value)
    return _Converter(_MAKERS | dict(makers or {}), build).convert(
        node, parse_type(annotation), path
    )


@final
@dataclass(frozen=True, slots=True)
class _Converter:
    makers: Mapping[str, Maker]
    build: Build | None

    def convert(self, node: Node, wanted: Type, path: str) -> Plain:
        if is_spec(node):
            return node if self.build is None else self.build(node, path)
        if wanted.name == "union":
            fitting = [part for part in wanted.args if part != ANY and fits(node, part)]
            return self.convert(node, fitting[0] if fitting else ANY, path)
        if node.is_list:
            return self._convert_list(node, wanted, path)
        if node.is_mapping:
            inner = wanted.args[0] if wanted.name == "dict" else ANY
            return {
                key: self.convert(child, inner, _join(path, key))
                for key, child in node.mapping.items()
            }
        return self._convert_scalar(node.value, wanted.name)

    def _convert_list(self, node: Node, wanted: Type, path: str) -> Plain:
        inner = wanted.args or (ANY,)
        if wanted.name != "tuple":
            inner = inner[:1] * len(node.elements)
        children = [
            self.convert(child, part, _join(path, str(index)))
            for index, (child, part) in enumerate(zip(node.elements, inner, strict=False))
        ]
        if wanted.name in ("tuple", "tuples"):
            return tuple(children)
        return set(children) if wanted.name == "set" else children

    def _convert_scalar(self, value: object, name: str) -> object:
        if name == "float" and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        maker = self.makers.get(name)
        return value if maker is None or value is None else maker(value)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
