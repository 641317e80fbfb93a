"""Checks ``data.<split>.pipes``: each pipe, and whether they fit together."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from epochal.check.sections.shape_problems import report_shape
from epochal.check.signatures.classes import class_definitions, find_method_node
from epochal.config.node import from_plain
from epochal.durable.remote import find_url_problem, hide_credentials, is_url
from epochal.errors import Place

if TYPE_CHECKING:
    from epochal.check.signatures.parameters import Signature
    from epochal.check.values.checker import ConfigChecker
    from epochal.config.node import Node
    from epochal.registry.module_finder import ModuleFinder
    from epochal.registry.parsed_module import Definition

_PIPE = "epochal.data.pipe.Pipe"
_TRAITS = ("gives", "needs_index", "keeps_items", "makes_batches", "splits", "shards")
_OF_BATCHES = {"batch_size": None, "drop_last": False, "collate": None, "repeat": 1}


def has_pipes(node: Node) -> bool:
    """Whether a split is described by pipes instead of one component."""
    return "pipes" in node.mapping


def expand_pipes(checker: ConfigChecker, path: str, node: Node, own: Signature) -> Node:
    """A split with pipes, expanded; mistakes go into ``checker``."""
    pipes, options = node.mapping["pipes"], node.without("pipes", "type")
    if "type" in node.mapping:
        what = "a split has either a type or pipes"
        hint = "remove one; a dataset can be the first of the pipes"
        checker.report(f"{path}.type", what, node.mapping["type"].key_place, hint)
    expanded = checker.entries(path, options, (own,), Place(own.owner))
    here = f"{path}.pipes"
    if not pipes.is_list or not pipes.elements:
        hint = "write pipes: [{type: jsonl, path: ...}, {type: shuffle}]"
        report_shape(checker, here, pipes, "a list of pipes", hint)
        return expanded.with_entries({**expanded.mapping, "pipes": pipes})
    chain = _Chain(checker, path)
    made = chain.add_all(here, pipes)
    chain.check_options(options)
    entries = {**expanded.mapping, "pipes": made}
    if "makes_batches" in chain.seen and "batch_size" not in options.mapping:
        entries["batch_size"] = from_plain(None, place=Place("default"), layer="default")
    return expanded.with_entries(entries)


@final
@dataclass(slots=True)
class _Chain:
    """What is known about the pipes so far."""

    checker: ConfigChecker
    path: str
    form: object = "unknown"
    """``indexed``, ``stream`` or ``unknown``, of the items so far."""

    maker: str = ""
    """The pipe that gave the items this form."""

    seen: dict[str, str] = field(default_factory=dict)
    """Traits that a pipe had, with its name."""

    def add_all(self, path: str, pipes: Node) -> Node:
        """A list of pipes, expanded."""
        return pipes.map_children(lambda key, child: self.add(f"{path}.{key}", child, int(key)))

    def add(self, path: str, node: Node, number: int) -> Node:
        """One more pipe, expanded."""
        checker, kind = self.checker, "pipe" if number else "source"
        written = node.mapping.get("type", node)
        name = str(written.value)
        other = "source" if number else "pipe"
        if name in checker.registry.names(other) and name not in checker.registry.names(kind):
            what = "is a source, but not the first pipe" if number else "is not a source"
            hint = "join several with mix" if number else "start with a source, such as jsonl"
            checker.report(f"{path}.type", f"{name!r} {what}", written.place, hint)
            self.form = "unknown"
            return node
        made = self._add_mix(path, node) if name == "mix" else checker.spec(path, node, kind)
        if not number and name in checker.registry.names(kind):
            _check_urls(checker, path, node)
        definition = checker.find_definition(path)
        if definition is None:
            self.form = "unknown"
            return made
        traits = read_traits(definition, checker.finder, is_source=not number)
        for what, hint in self._misfits(name, traits):
            checker.report(f"{path}.type", f"{name!r} {what}", written.place, hint)
        if traits["gives"] != "same":
            self.form, self.maker = traits["gives"], name
        self.seen |= {trait: name for trait in _TRAITS[3:] if traits[trait] is True}
        return made

    def _add_mix(self, path: str, node: Node) -> Node:
        """The source ``mix``, whose chains are lists of pipes again."""
        chains, here = node.get("chains"), f"{path}.chains"
        if not chains.is_list or not all(one.is_list for one in chains.elements):
            return self.checker.spec(path, node, "source")
        hollow = chains.map_children(lambda _, one: from_plain([], place=one.place))
        made = self.checker.spec(
            path, node.with_entries({**node.mapping, "chains": hollow}), "source"
        )
        whole = chains.map_children(
            lambda key, one: _Chain(self.checker, self.path).add_all(f"{here}.{key}", one)
        )
        return made.with_entries({**made.mapping, "chains": whole})

    def _misfits(self, name: str, traits: dict[str, object]) -> list[tuple[str, str]]:
        found = []
        if traits["needs_index"] is True and self.form == "stream":
            what = f"needs an index, and {self.maker!r} before it gives a stream"
            hint = "put materialise before it"
            hint = "write shuffle_buffer" if name == "shuffle" else hint
            found.append((what, hint))
        splitter = self.seen.get("splits") or self.seen.get("shards")
        if traits["keeps_items"] is True and splitter:
            found.append((f"keeps the items of all parts of {splitter!r}", "put it before"))
        for trait, what in (
            ("makes_batches", "makes batches of the batches of"),
            ("splits", "splits once more what is split by"),
        ):
            if traits[trait] is True and trait in self.seen:
                found.append((f"{what} {self.seen[trait]!r}", "remove one of the two"))
        return found

    def check_options(self, options: Node) -> None:
        """Report options of the loader that the pipes contradict."""
        shuffle, workers = options.get("shuffle"), options.get("workers")
        maker = self.seen.get("makes_batches")
        for key, default in _OF_BATCHES.items():
            node = options.mapping.get(key)
            if maker and node is not None and node.value not in (None, default):
                what = f"the pipe {maker!r} makes the batches"
                self._report(key, what, node, "remove it, and write it there")
        if shuffle.value is True and self.form == "stream":
            what = f"{self.maker!r} gives a stream, which has no index to shuffle"
            self._report("shuffle", what, shuffle, "remove it, and add the pipe shuffle_buffer")
        elif shuffle.value is True and maker:
            what = f"the pipe {maker!r} makes the batches"
            self._report("shuffle", what, shuffle, "add the pipe shuffle before it")
        sampler = options.get("sampler")
        if sampler.value is not None and not self.checker.has_any(f"{self.path}.sampler"):
            what = "a chain chooses the order of its items by pipes"
            self._report("sampler", what, sampler, "remove it, and add the pipe shuffle or sample")
        is_several = isinstance(workers.value, int) and workers.value > 1
        if is_several and self.form == "stream" and "splits" not in self.seen:
            what = f"{workers.value} workers would each read the whole stream of {self.maker!r}"
            hint = "add the pipe split_by_worker behind the source, or write workers: 1"
            self._report("workers", what, workers, hint)

    def _report(self, key: str, what: str, node: Node, hint: str) -> None:
        self.checker.report(f"{self.path}.{key}", what, node.place, hint)


def _check_urls(checker: ConfigChecker, path: str, node: Node) -> None:
    """Report URLs below a source of Epochal's that cannot be read with what is installed."""
    if isinstance(node.value, str) and is_url(node.value):
        check_url(checker, path, node)
    children = node.mapping or {str(at): one for at, one in enumerate(node.elements)}
    for key, child in children.items():
        _check_urls(checker, f"{path}.{key}", child)


def check_url(checker: ConfigChecker, path: str, node: Node) -> None:
    """Report a URL of an unknown kind, or one that needs a package which is not installed."""
    problem = find_url_problem(str(node.value))
    if problem is not None:
        what, hint = problem
        checker.report(path, f"{hide_credentials(str(node.value))!r}: {what}", node.place, hint)


def read_traits(
    definition: Definition, finder: ModuleFinder, *, is_source: bool = False
) -> dict[str, object]:
    """What a pipe needs and gives, read from the source of its class or function."""
    traits: dict[str, object] = {"gives": "same", **dict.fromkeys(_TRAITS[1:], False)}
    if not isinstance(definition.node, ast.ClassDef):
        yields = any(
            isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(definition.node)
        )
        return traits | {"gives": "stream" if yields or is_source else "same"}
    order, _ = class_definitions(definition, finder)
    if not any(item.dotted == _PIPE for item in order):
        method = "__iter__" if is_source else "stream"
        has_index = any(find_method_node(item.node, "__getitem__") for item in order)
        streams = any(find_method_node(item.node, method) for item in order) and not has_index
        known = "indexed" if is_source and has_index else "unknown" if is_source else "same"
        return traits | {"gives": "stream" if streams else known}
    for item in reversed(order):
        body = item.node.body if isinstance(item.node, ast.ClassDef) else []
        for statement in body:
            names = statement.targets if isinstance(statement, ast.Assign) else []
            names = [statement.target] if isinstance(statement, ast.AnnAssign) else names
            value = getattr(statement, "value", None)
            for name in names:
                if (
                    isinstance(name, ast.Name)
                    and name.id in traits
                    and isinstance(value, ast.Constant)
                ):
                    traits[name.id] = value.value
    return traits
