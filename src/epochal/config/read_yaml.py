"""YAML 1.2 into a tree with places: plain values only, no tags, no merge keys."""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

from epochal.config import scalar
from epochal.config.node import Node, Scalar
from epochal.config.problems import Findings, join, measure, require_limits
from epochal.config.yaml_errors import explain
from epochal.errors import Place, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.config.source_file import SourceText

_Event = Any  # the library does not type its events
_TAGS = "tag:yaml.org,2002:"
_COLLECTION_TAGS = frozenset({"!", f"{_TAGS}map", f"{_TAGS}seq"})
_TEXT_TAGS = frozenset({"!", f"{_TAGS}str"})
_ENDLESS_TAG = re.compile(r"(?:^|[\s\[{,])(![^\s]{1024})")


def read_yaml(text: SourceText, findings: Findings, *, layer: str, start: int = 0) -> Node | None:
    """The tree of a YAML document, or nothing after a syntax error was reported.

    The document begins at the character ``start``.
    """
    from ruamel.yaml import YAML

    if endless := _ENDLESS_TAG.search(text.text, start):
        place = text.place(endless.start(1))
        findings.report_file(text.name, "a tag has more than 1,000 characters", place)
        return None
    events = YAML(typ="safe", pure=True).parse(text.text[start:])
    return read_events(events, text, findings, layer=layer, start=start)


def read_events(
    events: Iterator[_Event], text: SourceText, findings: Findings, *, layer: str, start: int = 0
) -> Node | None:
    """The tree of a document that the YAML parser reports as events; as ``read_yaml``."""
    from ruamel.yaml.error import YAMLError

    reader = _YamlReader(text, findings, events, layer=layer, start=start)
    try:
        return reader.read_document()
    except (YAMLError, ValueError, OverflowError) as error:
        mistake = explain(error, text, start=start, reached=reader.reached)
        findings.report_file(text.name, mistake.what, mistake.place, mistake.hint)
        return None


@final
class _YamlReader:
    """Turns parser events into nodes, counting as it goes."""

    def __init__(
        self,
        text: SourceText,
        findings: Findings,
        events: Iterator[_Event],
        *,
        layer: str,
        start: int,
    ) -> None:
        self.reached = start
        self._text = text
        self._findings = findings
        self._events = events
        self._layer = layer
        self._start = start
        self._count = 0
        self._anchors: dict[str, Node] = {}
        self._open_anchors: set[str] = set()

    def read_document(self) -> Node | None:
        """The only document of the stream; None when there is none."""
        root: Node | None = None
        for event in self._events:
            kind = type(event).__name__
            if kind != "DocumentStartEvent":
                continue
            place = self._place(event)
            if root is not None:
                what, hint = "a second document starts here", "keep one document per file"
                self._findings.report_file(self._text.name, what, place, hint)
                break
            if event.version is not None or event.tags:
                what = "%YAML and %TAG lines are not read"
                hint = "remove them; every file is YAML 1.2"
                directive = self._text.text.find("%", self._start)
                place = self._text.place(directive, event.start_mark.index)
                self._findings.report_file(self._text.name, what, place, hint)
            root = self._read(next(self._events), "", 1)
        return root

    def _read(self, event: _Event, path: str, depth: int) -> Node:
        self._count += 1
        self.reached = self._start + event.end_mark.index
        require_limits(self._text.name, self._count, depth)
        kind = type(event).__name__
        if kind == "AliasEvent":
            return self._follow(event, path, depth)
        anchor = event.anchor
        if anchor is not None:
            self._open_anchors.add(anchor)
        if kind == "ScalarEvent":
            node = Node(self._scalar(event, path), self._place(event), layer=self._layer)
        else:
            node = self._collection(event, path, depth)
        if anchor is not None:
            self._open_anchors.discard(anchor)
            self._anchors[anchor] = node
        return node

    def _collection(self, event: _Event, path: str, depth: int) -> Node:
        if event.tag is not None and event.tag not in _COLLECTION_TAGS:
            self._refuse_tag(event, path)
        if type(event).__name__ == "MappingStartEvent":
            value, end = self._entries(path, depth)
            return Node(MappingProxyType(value), self._span(event, end), layer=self._layer)
        elements: list[Node] = []
        while type(child := next(self._events)).__name__ != "SequenceEndEvent":
            elements.append(self._read(child, join(path, str(len(elements))), depth + 1))
        return Node(tuple(elements), self._span(event, child), layer=self._layer)

    def _entries(self, path: str, depth: int) -> tuple[dict[str, Node], _Event]:
        entries: dict[str, Node] = {}
        while type(event := next(self._events)).__name__ != "MappingEndEvent":
            place = self._place(event)
            key = self._key(event, path, depth)
            below = join(path, key or "?")
            value = next(self._events)
            child = self._read(value, below, depth + 1)
            if key is None or not self._has_colon(event, value, below):
                continue
            if first := entries.get(key):
                hint = f"first set in line {first.key_place.line}; keep one of the two"
                self._findings.report(below, f"duplicate key {key!r}", place, hint)
                continue
            entries[key] = replace(child, key_place=place)
        return entries, event

    def _has_colon(self, key: _Event, value: _Event, path: str) -> bool:
        """Whether a key in ``{...}`` has a colon; YAML would read null without one."""
        if getattr(value, "value", None) != "" or value.style is not None or value.anchor:
            return True
        if "?" in path.rpartition(".")[2] or type(key).__name__ != "ScalarEvent":
            return True
        between = slice(self._start + key.end_mark.index, self._start + value.start_mark.index)
        if ":" in self._text.text[between]:
            return True
        hint = "write {key: value}, with a space after the colon"
        self._findings.report(path, f"{key.value!r} has no value", self._place(key), hint)
        return False

    def _key(self, event: _Event, path: str, depth: int) -> str | None:
        kind, place = type(event).__name__, self._place(event)
        self.reached = self._start + event.end_mark.index
        if kind == "ScalarEvent":
            key = str(event.value)
            if key == "<<" and event.style is None:
                what = "the merge key '<<' is not read"
                hint = "put the shared keys into a separate file and write `$BASE: shared.yaml`"
                self._findings.report(join(path, key), what, place, hint)
                return None
            if scalar.has_surrogates(key):
                self._report_broken(path, "contains half of a surrogate pair", place)
                return None
            if event.tag is not None and event.tag not in _TEXT_TAGS:
                self._refuse_tag(event, join(path, key))
            if event.anchor is not None:
                self._anchors[event.anchor] = Node(key, place, layer=self._layer)
            return key
        node = self._read(event, join(path, "?"), depth + 1)
        if isinstance(node.value, str):
            return node.value
        what, hint = "a key must be a word", "put quotes around it if it is meant as text"
        self._findings.report(join(path, "?"), what, place, hint)
        return None

    def _scalar(self, event: _Event, path: str) -> Scalar:
        text, tag = str(event.value), event.tag
        if scalar.has_surrogates(text):
            self._report_broken(path, "contains half of a surrogate pair", self._place(event))
            return ""
        plain = event.style is None
        if tag is None and not plain:
            return text
        try:
            return scalar.resolve(text) if tag is None else self._tagged(event, text, path)
        except ValueError as error:
            self._report_broken(path, f"{error}, got {scalar.shorten(text)}", self._place(event))
            return text

    def _tagged(self, event: _Event, text: str, path: str) -> Scalar:
        name = str(event.tag).removeprefix(_TAGS)
        if name in {"!", "str"}:
            return text
        kinds: dict[str, type | tuple[type, ...]] = {
            "null": type(None),
            "bool": bool,
            "int": int,
            "float": (int, float),
        }
        if name not in kinds or not str(event.tag).startswith(_TAGS):
            self._refuse_tag(event, path)
            return text
        value = scalar.resolve(text)
        if not isinstance(value, kinds[name]) or (name != "bool" and isinstance(value, bool)):
            raise ValueError(f"is tagged !!{name} but is not one")
        return float(value) if name == "float" and isinstance(value, int) else value

    def _refuse_tag(self, event: _Event, path: str) -> None:
        tag = str(event.tag)
        shown = "!!" + tag.removeprefix(_TAGS) if tag.startswith(_TAGS) else tag
        hint = "write a plain value; name code with `type:`"
        if shown == "!!python/tuple":
            hint = "write a plain list; it becomes a tuple where the signature asks for one"
        self._report_broken(
            path, f"tag {scalar.shorten(shown, 60)!r} is not read", self._place(event), hint
        )

    def _follow(self, event: _Event, path: str, depth: int) -> Node:
        place, name = self._place(event), event.anchor
        target = self._anchors.get(name)
        if name in self._open_anchors or target is None:
            what, hint = f"alias '*{name}' refers to itself", "refer to another value"
            if name not in self._open_anchors:
                what = f"alias '*{name}' names no anchor"
                hint = suggest(name, self._anchors) or f'put quotes around it: "*{name}"'
            self._report_broken(path, what, place, hint)
            return Node(None, place, layer=self._layer)
        count, height = measure(target)
        self._count += count - 1
        require_limits(self._text.name, self._count, depth + height - 1)
        return replace(target, place=place)

    def _report_broken(self, path: str, what: str, place: Place, hint: str = "") -> None:
        self._findings.report(path or self._text.name, what, place, hint)
        self._findings.broken.add(path)

    def _place(self, event: _Event) -> Place:
        return self._span(event, event)

    def _span(self, first: _Event, last: _Event) -> Place:
        begin, end = first.start_mark.index, last.end_mark.index
        return self._text.place(self._start + begin, self._start + end)
