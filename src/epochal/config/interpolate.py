"""Interpolation of ``${...}``: other keys of the config and declared environment variables.

``${task:NAME}`` stays as it is until the task is built.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, final

from epochal.config import scalar
from epochal.config.node import TASK_OPENING, Node
from epochal.config.problems import MAX_BYTES, MAX_DEPTH, MAX_NODES, measure
from epochal.errors import Place, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from epochal.config.problems import Findings

ENV = "env:"
TASK_SECTIONS = ("model", "loss", "metrics")
"""The sections that may use attributes of the task; they are built after it."""

ENV_OPENING = "${env:"
"""The start of a reference to the environment."""

_Path = tuple[str, ...]  # a key may contain dots, so a dotted text would be ambiguous
_INSIDE = re.compile(r"([^{}]*)\}")
_NESTED_CALLS = 128
"""Maximum depth of references to references; more would exhaust Python's stack."""

_SUGGESTIONS = 5
"""How many dangling references get a suggestion, which is slow in a big config."""


class _Unresolved(Exception):  # noqa: N818  never leaves this module
    """A reference that cannot be resolved; without a message when its target was reported."""

    def __init__(self, what: str = "", hint: str = "", *, written: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.written = written


@final
@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a text: literal, or a reference with its target."""

    written: str
    target: Node | None = None

    @property
    def from_environment(self) -> bool:
        """Whether its value must not be written into a file."""
        return self.target is not None and ENV_OPENING in (self.target.template or "")


def interpolate(
    root: Node, findings: Findings, environment: Mapping[str, str] | None = None
) -> Node:
    """The config with every reference resolved and every ``$`` word decoded.

    A value that cannot be resolved keeps its text; it is reported and added to ``broken``.
    """
    resolver = _Resolver(root, findings, os.environ if environment is None else environment)
    return resolver.resolve(root, ())


@final
class _Resolver:
    def __init__(self, root: Node, findings: Findings, environment: Mapping[str, str]) -> None:
        self._root = root
        self._findings = findings
        self._environment = environment
        self._declared = _declared_names(root, findings)
        self._done: dict[_Path, Node] = {}
        self._open: list[_Path] = []
        self._unresolved: set[_Path] = set()
        """Values that could not be resolved, and everything that contains one."""

        self._copied_nodes = 0
        self._copied_characters = 0
        self._suggestions = 0

    def resolve(self, node: Node, path: _Path) -> Node:
        """The node at ``path`` with all references in it resolved."""
        if path in self._done:
            return self._done[path]
        if len(self._open) >= _NESTED_CALLS:
            raise _Unresolved("references to references are nested too deep")
        self._open.append(path)
        try:
            result = self._resolve(node, path)
        finally:
            self._open.pop()
        self._done[path] = result
        return result

    def _resolve(self, node: Node, path: _Path) -> Node:
        if node.is_mapping:
            children = node.mapping.items()
            node = node.without(*(k for k, c in children if self._is_leftover(c, (*path, k))))
        if node.is_mapping or node.is_list:
            return node.map_children(lambda key, child: self.resolve(child, (*path, key)))
        if not isinstance(node.value, str) or "$" not in node.value:
            return node
        try:
            return self._fill(node, node.value, path)
        except _Unresolved as error:
            key = ".".join(path)
            if error.what:
                self._findings.report(key, error.what, _narrow(node, error.written), error.hint)
            self._findings.broken.add(key)
            self._unresolved.update(path[:length] for length in range(len(path) + 1))
            return replace(node, template=node.value)

    def _is_leftover(self, node: Node, path: _Path) -> bool:
        if node.value != scalar.DELETE:
            return False
        key = ".".join(path)
        if self._findings.is_unknown(key):
            return True
        what = "there is no inherited value to delete"
        self._findings.report(key, what, node.place, "remove this line")
        return True

    def _fill(self, node: Node, text: str, path: _Path) -> Node:
        if text == scalar.DELETE:
            raise _Unresolved("only a key of a mapping can be deleted", "write the whole list")
        pieces = list(self._pieces(text, path))
        references = [piece for piece in pieces if piece.target is not None]
        if not references:
            return replace(node, value=scalar.decode(text, "".join(p.written for p in pieces)))
        template = text
        if any(piece.target is not None and piece.target.is_deferred for piece in pieces):
            return self._defer(node, pieces)
        if any(piece.from_environment for piece in references):
            template = "".join(_as_template(piece) for piece in pieces)
        if len(pieces) == 1 and pieces[0].target is not None:
            value = pieces[0].target.value
        else:
            value = "".join(self._embed(piece) for piece in pieces)
        return replace(node, value=value, template=template)

    def _defer(self, node: Node, pieces: list[_Piece]) -> Node:
        target = pieces[0].target
        if len(pieces) > 1 or target is None:
            written = next(
                p.written for p in pieces if p.target is not None and p.target.is_deferred
            )
            what = f"{written} is known only when the task is built, and cannot be part of a text"
            raise _Unresolved(what, "make it the whole value", written=written)
        return replace(node, value=target.value, template=target.template)

    def _pieces(self, text: str, path: _Path) -> Iterator[_Piece]:
        at = 0
        while opening := scalar.OPENING.search(text, at):
            if opening.start() > at:
                yield _Piece(text[at : opening.start()])
            if len(opening[1]) > 1:
                yield _Piece(opening[0][1:])
                at = opening.end()
                continue
            inside = _INSIDE.match(text, opening.end())
            if inside is None:
                hint = "close it with }, or write $${ for the text itself"
                raise _Unresolved("'${' is never closed", hint, written="${")
            written = text[opening.start() : inside.end()]
            yield _Piece(written, self._target(inside[1].strip(), written, path))
            at = inside.end()
        if at < len(text):
            yield _Piece(text[at:])

    def _target(self, reference: str, written: str, path: _Path) -> Node:
        prefix, colon, name = reference.partition(":")
        if colon and prefix == "task":
            return _from_task(name.strip(), written, path)
        if colon and prefix != "env":
            hint = "write ${section.key}, ${env:NAME} or ${task:NAME}"
            raise _Unresolved(f"unknown kind of reference {written!r}", hint, written=written)
        if colon:
            return self._from_environment(name.strip(), written)
        if not reference:
            hint = "write ${section.key}, or $${ for the text itself"
            raise _Unresolved(f"{written!r} is empty", hint, written=written)
        node, target = self._find(reference, written)
        if target in self._unresolved:
            raise _Unresolved
        count, height = measure(node)
        self._copied_nodes += count
        if self._copied_nodes > MAX_NODES or len(path) + height > MAX_DEPTH:
            raise _Unresolved("references make the config too big", written=written)
        return node

    def _find(self, reference: str, written: str) -> tuple[Node, _Path]:
        """The target of a reference, resolved, and its path."""
        node, path = self._root, _Path()
        parts = reference.split(".")
        for i, part in enumerate(parts):
            if isinstance(node.value, str) and "${" in node.value:
                inner = self._resolve_target(node, path, written).find(".".join(parts[i:]))
                if inner is None:
                    raise self._dangling(reference, written)
                return inner, path
            child = node.find(part) if part else None
            if child is None:
                raise self._dangling(reference, written)
            node, path = child, (*path, part)
        return self._resolve_target(node, path, written), path

    def _resolve_target(self, node: Node, path: _Path, written: str) -> Node:
        if path in self._open:
            links = [*self._open[self._open.index(path) :], path]
            chain = " -> ".join(".".join(link) for link in links)
            what, hint = f"references form a cycle: {chain}", "set one of these to a value"
            raise _Unresolved(what, hint, written=written)
        return self.resolve(node, path)

    def _dangling(self, reference: str, written: str) -> _Unresolved:
        if self._findings.is_unknown(reference):
            return _Unresolved()
        hint = ""
        self._suggestions += 1
        if self._suggestions <= _SUGGESTIONS:
            known = islice((path for path, _ in self._root.iter_leaves()), 2_000)
            hint = suggest(reference, known)
        what = f"refers to {reference!r}, which is not set"
        if reference.startswith("."):
            hint = "write the whole path from the top"
        return _Unresolved(what, hint, written=written)

    def _from_environment(self, name: str, written: str) -> Node:
        if name not in self._declared:
            what = f"environment name {name!r} is not declared"
            raise _Unresolved(what, f"add it at the top level: `env: [{name}]`", written=written)
        value = self._environment.get(name)
        if value is None:
            what = f"environment variable {name!r} is not set"
            raise _Unresolved(what, f"export {name}=VALUE before the run", written=written)
        return Node(value, template=f"${{env:{name}}}")

    def _embed(self, piece: _Piece) -> str:
        if piece.target is None:
            return piece.written
        if piece.target.is_mapping or piece.target.is_list:
            kind = "a mapping" if piece.target.is_mapping else "a list"
            what = f"{piece.written} is {kind} and cannot be part of a text"
            raise _Unresolved(what, "make it the whole value", written=piece.written)
        text = _as_text(piece.target)
        self._copied_characters += len(text)
        if self._copied_characters > MAX_BYTES:
            raise _Unresolved("references make the config too big", written=piece.written)
        return text


def _from_task(name: str, written: str, path: _Path) -> Node:
    if not all(part.isidentifier() for part in name.split(".")):
        hint = "write ${task:NAME}, such as ${task:vocab_size}"
        raise _Unresolved(f"{written!r} names no attribute of the task", hint, written=written)
    if path[0] not in TASK_SECTIONS:
        what = f"{written} cannot be used here: {path[0]!r} is read before the task is built"
        hint = f"only these sections can use it: {', '.join(TASK_SECTIONS)}"
        raise _Unresolved(what, hint, written=written)
    reference = f"{TASK_OPENING}{name}}}"
    return Node(reference, template=reference)


def _declared_names(root: Node, findings: Findings) -> frozenset[str]:
    section = root.mapping.get("env")
    if section is None:
        return frozenset()
    names = {child.value for child in section.elements if isinstance(child.value, str)}
    if not section.is_list or len(names) < len(section.elements):
        what, hint = "expected a list of names", "write `env: [DATA_DIR, USER]`"
        findings.report("env", what, section.place, hint)
    return frozenset(names)


def _as_text(node: Node) -> str:
    value = node.value
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _as_template(piece: _Piece) -> str:
    if piece.target is None:
        # ``_pieces`` removed one dollar of an escaped opening.
        return f"${piece.written}" if scalar.OPENING.fullmatch(piece.written) else piece.written
    if piece.from_environment and piece.target.template:
        return piece.target.template
    return scalar.escape(_as_text(piece.target))


def _narrow(node: Node, written: str) -> Place:
    """The place of one reference inside a value, where its line shows it."""
    place = node.place
    found = place.text.find(written, max(place.column - 1, 0)) if written and place.line else -1
    if found < 0:
        return place
    return replace(place, column=found + 1, width=len(written))
