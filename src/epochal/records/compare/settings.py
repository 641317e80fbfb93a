"""The parameters of runs: the value in force, who set it, and tables to compare them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from epochal.records.compare.difference import RunValue
from epochal.records.folder.provenance import format_origin, get_newest_origins
from epochal.records.layout.coerce import iter_leaves

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from epochal.records.compare.difference import ValueTable
    from epochal.records.folder.record import RunRecord

SEED = "seed"
_IGNORED_KEYS = (SEED, "tag", "desc", "record")
_TYPE_OF_ELEMENT = re.compile(r"(.+)\.(\d+)\.type")


def read_settings(record: RunRecord) -> dict[str, RunValue]:
    """Every value of a run's config by dotted key, defaults included, with who set it.

    Changes made when the run was resumed count.
    """
    known = {
        key: RunValue(origin.get("value"), format_origin(origin), origin.get("layer") == "default")
        for key, origin in get_newest_origins(record.provenance).items()
    }
    if not known:  # provenance.json is lost
        return {key: RunValue(value) for key, value in iter_leaves(record.expanded)}
    return known


def parameter_tables(records: Sequence[RunRecord]) -> list[ValueTable | None]:
    """The parameters of each run, without seed, tag, description and record options.

    Where lists hold different types, such as hooks, their elements are named by type: one more
    hook must not make every later hook differ.
    """
    tables = [
        {
            key: side
            for key, side in read_settings(record).items()
            if key.partition(".")[0] not in _IGNORED_KEYS
        }
        for record in records
    ]
    lists = [_types_by_list(table) for table in tables]
    names = {name for found in lists for name in found}
    uneven = {
        name for name in names if any(found.get(name) != lists[0].get(name) for found in lists)
    }
    return [
        {_by_type(key, types, uneven): side for key, side in table.items()} or None
        for table, types in zip(tables, lists, strict=True)
    ]


def seed_table(record: RunRecord) -> ValueTable | None:
    """The seed of a run and who set it; None if it is lost."""
    side, recorded = read_settings(record).get(SEED), record.run.get(SEED)
    if side is None and recorded is not None:
        side = RunValue(recorded)
    return None if side is None else {SEED: side}


def _types_by_list(table: ValueTable) -> dict[str, list[str]]:
    """The types of the elements of each list of specs, by the list's path."""
    found: dict[str, list[str]] = {}
    for key, side in table.items():
        if match := _TYPE_OF_ELEMENT.fullmatch(key):
            types = found.setdefault(match[1], [])
            name = str(side.value).rpartition(".")[2]
            types.extend([""] * (int(match[2]) - len(types)))
            before = types.count(name) + sum(one.startswith(f"{name}#") for one in types)
            types.append(f"{name}#{before + 1}" if before else name)
    return found


def _by_type(key: str, types: Mapping[str, list[str]], uneven: set[str]) -> str:
    """``hooks.1.patience`` as ``hooks[EarlyStopping].patience``, in the lists ``uneven``."""
    shown, path = "", ""
    for part in key.split("."):
        if path in uneven and part.isdecimal() and int(part) < len(types.get(path, ())):
            shown += f"[{types[path][int(part)]}]"
        else:
            shown += f".{part}" if shown else part
        path = f"{path}.{part}" if path else part
    return shown
