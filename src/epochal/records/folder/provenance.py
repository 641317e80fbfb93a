"""Records and explains where each value of a config was set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from epochal.errors import COMMAND_LINE, ConfigError, RecordError, nearest, suggest
from epochal.records.secrets import redact_tree

if TYPE_CHECKING:
    from epochal.config.node import Node
    from epochal.records.folder.reader import RunRecord
    from epochal.records.layout.attempts import Attempt

Origin = Mapping[str, object]
"""One setting of a value: value, source, line, column, layer, and the text as written."""


def collect_provenance(
    expanded: Node, defaults: Iterable[tuple[str, object, str]] = ()
) -> dict[str, list[Origin]]:
    """Where each value of an expanded config was set, newest first, by dotted key.

    ``defaults`` has key, value and owner of each default.
    """
    owners = {key: owner for key, _, owner in defaults}
    return {
        key: [_origin(node, _owner_of(key, owners)) for node in _history(leaf)]
        for key, leaf in expanded.iter_leaves()
        if key
    }


def get_newest_origins(provenance: Mapping[str, object]) -> dict[str, Origin]:
    """Where the current value of each key was set; damaged entries are left out."""
    return {
        key: origins[0]
        for key, origins in provenance.items()
        if isinstance(origins, list) and origins and isinstance(origins[0], Mapping)
    }


def _owner_of(key: str, owners: Mapping[str, str]) -> str:
    """The owner of a default, or of the list that contains it."""
    while key and key not in owners:
        key = key.rpartition(".")[0]
    return owners.get(key, "")


def _history(node: Node) -> Iterable[Node]:
    current: Node | None = node
    while current is not None:
        yield current
        current = current.replaced


def _origin(node: Node, owner: str) -> Origin:
    origin: dict[str, object] = {
        "value": node.to_public(),
        "source": owner if node.layer == "default" and owner else node.place.name,
        "line": node.place.line,
        "column": node.place.column,
        "layer": node.layer,
    }
    if node.layer == COMMAND_LINE:
        origin["text"] = node.place.text
    if node.template is not None:
        origin["text"] = node.template
    return origin


def apply_attempt_overrides(
    provenance: Mapping[str, object], expanded: object, attempts: Sequence[Attempt]
) -> Mapping[str, object]:
    """The provenance with the overrides that were given when the run was resumed.

    ``provenance`` and ``expanded`` are those of the start. The last attempt has all overrides.
    """
    from epochal.config import from_plain
    from epochal.config.override import apply_overrides
    from epochal.config.problems import Findings

    try:
        root = apply_overrides(from_plain(expanded), attempts[-1].overrides, Findings())
    except ConfigError:  # the record is damaged
        return provenance
    found: dict[str, object] = {}
    for key, node in root.iter_leaves():
        before = provenance.get(key)
        older = before if isinstance(before, list) else []
        if key and (node.layer == COMMAND_LINE or not older):
            source = (
                f"{COMMAND_LINE} of attempt {_find_changing_attempt(node.place.text, attempts)}"
            )
            found[key] = [{**_origin(node, ""), "source": source, "layer": COMMAND_LINE}, *older]
        elif key:
            found[key] = older
    return found


def apply_task_values(provenance: Mapping[str, object], values: object) -> Mapping[str, object]:
    """The provenance with the values that ``${task:NAME}`` had, by key."""
    if not isinstance(values, Mapping):  # most runs have none
        return provenance
    found = dict(provenance)
    for key, value in values.items():
        origins = found.get(key)
        if isinstance(origins, list) and origins and isinstance(origins[0], Mapping):
            found[key] = [{**origins[0], "value": value}, *origins[1:]]
    return found


def _find_changing_attempt(override: str, attempts: Sequence[Attempt]) -> int:
    """The first attempt since which an override is unchanged."""
    since = list(takewhile(lambda one: override in one.overrides, reversed(attempts)))
    return (since or attempts)[-1].attempt


def redact_provenance(provenance: Mapping[str, object]) -> dict[str, object]:
    """The provenance without secrets; of a secret, only the value is redacted."""
    pairs = [
        [({key: one.get("value")}, one) for one in (origins if isinstance(origins, list) else ())]
        for key, origins in provenance.items()
    ]
    return {  # one call for all: it collects the secrets of the process each time
        key: [{**origin, "value": value} for named, origin in found for value in named.values()]
        for key, found in zip(provenance, redact_tree(pairs), strict=True)
    }


def explain(record: RunRecord, key: str) -> str:
    """The value of ``key``, where it was set, and what that replaced; of a section, all values."""
    provenance = record.provenance
    if key in provenance:
        return "\n".join(_explain_one(key, provenance[key]))
    inside = [known for known in provenance if known.startswith(f"{key}.")] if key else []
    if not provenance:
        path = record.path / "config" / "provenance.json"
        what = "is damaged or empty" if path.exists() else "is missing"
        raise RecordError(
            f"{path}: {what}, so the origin of {key!r} is unknown\n"
            f"  the values themselves are in {path.parent}"
        )
    if not inside:
        hint = _suggest_key(key, provenance)
        raise RecordError(f"{key}: not in the config of {record.path}\n  {hint}")
    return "\n".join(line for known in inside for line in _explain_one(known, provenance[known]))


def _suggest_key(key: str, known: Iterable[str]) -> str:
    """A hint for a key that the config lacks: a similar one of the same section, if it has one."""
    section, _, last = key.rpartition(".")
    beside = {one.rpartition(".")[2]: one for one in known if one.startswith(f"{section}.")}
    if not section or not beside:
        return suggest(key, known) or "`--config` prints all values"
    close = nearest(last, beside)
    return f"did you mean {beside[close]!r}?" if close else f"`--explain {section}` shows all of it"


def _explain_one(key: str, origins: object) -> list[str]:
    known = origins if isinstance(origins, list) else []  # the file may be damaged
    known = [origin for origin in known if isinstance(origin, Mapping)]
    if not known:
        return [f"{key}: its origin is lost"]
    newest, *older = known
    lines = [f"{key} = {_show(newest.get('value'))}", f"  {_describe_setter(newest)}"]
    for origin in older:
        is_default = origin.get("layer") == "default"
        joint = "" if is_default else "from "
        lines.append(f"  over {_show(origin.get('value'))} {joint}{format_origin(origin)}")
    return lines


def _describe_setter(origin: Origin) -> str:
    layer, text = origin.get("layer"), origin.get("text")
    if layer == COMMAND_LINE:
        return f"set by {format_origin(origin)}" + (f": {text}" if text else "")
    if layer == "default":
        return format_origin(origin)
    written = f", written as {text}" if text else ""
    return f"set in {format_origin(origin)}{written}"


def format_origin(origin: Origin) -> str:
    """A short text for an origin: ``a.yaml:3:5``, ``command line`` or ``default of X``."""
    source, line, layer = origin.get("source"), origin.get("line"), origin.get("layer")
    if layer == "default":
        return f"default of {source}" if source and source != layer else "default"
    spot = f":{line}:{origin.get('column')}" if line and layer != COMMAND_LINE else ""
    return f"{source}{spot}" + (f" ({layer})" if layer in ("base", "variant", "sweep") else "")


def _show(value: object) -> str:
    import json

    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False, default=str)
