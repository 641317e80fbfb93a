"""Options that a script of one's own adds: they are values of the config, and recorded as such."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

from epochal.check import SECTIONS
from epochal.config import Config, Node, from_plain
from epochal.errors import Place
from epochal.experiment.choices import to_override

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_UNTYPED = object()


@final
@dataclass(frozen=True)
class OwnOptions:
    """What the script's own options came to, by their attribute names."""

    typed: Mapping[str, Any] = field(default_factory=dict)
    """As the parser made them of what was typed."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Of those that were not typed."""

    def to_overrides(self) -> list[str]:
        """What was typed, as changes to the config."""
        return [to_override(config_key(name), value) for name, value in self.typed.items()]

    def without(self, keys: Collection[str]) -> OwnOptions:
        """The same less those that stand at these config keys."""
        return OwnOptions(
            {name: value for name, value in self.typed.items() if config_key(name) not in keys},
            {name: value for name, value in self.defaults.items() if config_key(name) not in keys},
        )

    def fill(self, config: Config) -> Config:
        """The config with the defaults where it says nothing itself."""
        root = config.root
        for name, value in self.defaults.items():
            key = config_key(name)
            if root.find(key) is None and (value is not None or key.startswith("extra.")):
                place = Place(f"option --{name.replace('_', '-')}")
                root = _put(root, key.split("."), from_plain(value, place=place, layer="default"))
        return replace(config, root=root)

    def attach(self, args: argparse.Namespace, root: Node) -> None:
        """Give ``args`` the values under their own names, of the types the parser gave them."""
        for name, value in {**self.defaults, **self.typed}.items():
            node = root.find(config_key(name))
            if node is None or (
                config_key(name) != name and (name in self.typed or node.layer == "default")
            ):
                setattr(args, name, value)


def read_own(
    parser: argparse.ArgumentParser, argv: Sequence[str], actions: Sequence[argparse.Action]
) -> OwnOptions:
    """What ``actions`` of the parser came to, told apart by whether they were typed."""
    names = [a.dest for a in actions if a.default is not argparse.SUPPRESS]
    # argparse leaves an attribute alone that exists already, so what is typed can be told.
    marked = argparse.Namespace(**dict.fromkeys((a.dest for a in actions), _UNTYPED))
    found, _ = parser.parse_known_args(argv, marked)
    typed = {a.dest: getattr(found, a.dest) for a in actions}
    typed = {name: value for name, value in typed.items() if value is not _UNTYPED}
    usual, _ = parser.parse_known_args(argv)
    defaults = {name: getattr(usual, name) for name in names if name not in typed}
    return OwnOptions(typed, defaults)


def config_key(name: str) -> str:
    """Where an option of the script's own lands in the config: a known key, or ``extra``."""
    return name if name.partition(".")[0] in SECTIONS else f"extra.{name}"


def _put(node: Node, path: Sequence[str], value: Node) -> Node:
    """The tree with ``value`` at ``path``; a value that is in the way stays."""
    if not path:
        return value
    if not node.is_mapping:
        return node
    child = node.mapping.get(path[0], Node(MappingProxyType({}), value.place, layer=value.layer))
    entries = {**node.mapping, path[0]: _put(child, path[1:], value)}
    return replace(node, value=MappingProxyType(entries))
