"""``$BASE``: configs that start from other files."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, final

from epochal.config.merge import merge, merge_all, nest
from epochal.config.problems import (
    MAX_BASE_DEPTH,
    MAX_BASES,
    Findings,
    join,
    measure,
    refuse,
    require_limits,
)
from epochal.config.scalar import show
from epochal.config.source_file import SourceFile, display_name, read_document, read_source
from epochal.config.type_aliases import rename_spec
from epochal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from epochal.config.node import Node

BASE = "$BASE"


@final
@dataclass
class Inheritance:
    """Merges base files into a tree; each file is read once."""

    allow_python: bool = False
    read: Callable[[Path], SourceFile] = read_source
    """Returns the text of a file."""

    sources: list[SourceFile] = field(default_factory=list)
    """The base files that were read, in order."""

    _composed: dict[str, tuple[Node, Findings]] = field(default_factory=dict)
    """Each base file with its own bases merged in, and what was wrong with it."""

    _chain: list[str] = field(default_factory=list)
    """Real paths of the files being composed: a file that is among them closes a cycle."""

    _included: int = 0

    def compose(self, node: Node, path: Path | None, findings: Findings) -> Node:
        """The tree with everything that ``$BASE`` names merged in below it.

        Relative base paths start from the folder of ``path``, the file the tree came from.
        """
        folder = path.parent if path else Path.cwd()
        name = display_name(path) if path else node.place.name
        if path:
            self._chain.append(os.path.realpath(path))
        try:
            result = self._expand(node, folder, "", findings)
        finally:
            if path:
                self._chain.pop()
        require_limits(name, *measure(result))
        return result

    def _expand(self, node: Node, folder: Path, path: str, findings: Findings) -> Node:
        entry = node.mapping.get(BASE)
        own = (node if entry is None else node.without(BASE)).map_children(
            lambda key, child: self._expand(child, folder, join(path, key), findings)
        )
        if entry is None:
            return own
        below = merge_all(self._included_trees(entry, folder, path, findings))
        return own if below is None else merge(below, own)

    def _included_trees(
        self, entry: Node, folder: Path, path: str, findings: Findings
    ) -> Iterator[Node]:
        """The trees that a ``$BASE`` value names, in the order they are merged."""
        if isinstance(entry.value, str):
            tree = self._include(entry, folder, path, findings)
            if tree is not None:
                yield tree
        elif entry.is_list:
            for element in entry.elements:
                yield from self._included_trees(element, folder, path, findings)
        elif entry.is_mapping:
            for section, child in entry.mapping.items():
                below = join(path, section)
                if not all(section.split(".")):
                    what = f"{section!r} is not a path of keys"
                    findings.report(join(path, BASE), what, child.key_place)
                    continue
                trees = merge_all(self._included_trees(child, folder, below, findings))
                if trees is not None:
                    yield nest(section.split("."), replace(trees, key_place=child.key_place))
        else:
            what = f"expected a path, a list or a mapping of sections, got {show(entry.value)}"
            findings.report(join(path, BASE), what, entry.place, "write `$BASE: other.yaml`")
            findings.broken.add(path)

    def _include(self, entry: Node, folder: Path, path: str, findings: Findings) -> Node | None:
        target = folder / Path(str(entry.value)).expanduser()
        try:
            node, own = self._compose_file(target)
        except ConfigError as error:
            problem = error.problems[0]
            what = f"{problem.key}: {problem.what}" if problem.key != BASE else problem.what
            findings.report(join(path, BASE), what, entry.place, problem.hint)
            findings.broken.add(path)
            return None
        findings.include(own, path)
        return rename_spec(node, path, findings) if path else node

    def _compose_file(self, target: Path) -> tuple[Node, Findings]:
        real = os.path.realpath(target)
        if real in self._chain:
            chain = [*self._chain[self._chain.index(real) :], real]
            names = " -> ".join(display_name(Path(link)) for link in chain)
            refuse(BASE, f"base files form a cycle: {names}", "remove one of these $BASE entries")
        if len(self._chain) > MAX_BASE_DEPTH:
            refuse(BASE, f"bases are nested more than {MAX_BASE_DEPTH} files deep")
        self._included += 1
        if self._included > MAX_BASES:
            refuse(BASE, f"more than {MAX_BASES} bases in one config")
        if real not in self._composed:
            findings = Findings()
            source = self.read(target)
            self.sources.append(source)
            node = read_document(source, findings, layer="base", allow_python=self.allow_python)
            self._composed[real] = (self.compose(node, target, findings), findings)
        return self._composed[real]
