"""Tables of the settings, packages, hardware and data of runs, and how they compare."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from epochal.records.folder.checkpoint_manifests import find_checkpoints
from epochal.records.folder.folder import CHECKPOINTS_DIR
from epochal.records.folder.provenance import format_origin, get_newest_origins
from epochal.records.layout.coerce import as_mapping, iter_leaves

if TYPE_CHECKING:
    from epochal.records.folder.reader import RunRecord


@final
@dataclass(frozen=True, slots=True)
class RunValue:
    """The value of one run under a name."""

    value: Any  # any JSON value
    where: str = ""
    """Where it was set; empty for facts."""

    is_default: bool = False


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """One name whose values differ between runs."""

    key: str
    sides: tuple[RunValue | None, ...]
    """One for each run; None where it is missing."""

    @property
    def is_minor(self) -> bool:
        """Whether it is a default that only some runs have, because of another class or version."""
        present = [side for side in self.sides if side is not None]
        return len(present) < len(self.sides) and all(side.is_default for side in present)


ValueTable = Mapping[str, RunValue]


@final
@dataclass(frozen=True, slots=True)
class SectionComparison:
    """The comparison of one section."""

    differences: tuple[Difference, ...]
    """The names that differ, in the order of the runs."""

    num_same: int
    """The number of names with equal values in all runs."""

    unknown: tuple[int, ...] = ()
    """Indices of runs without this section; the others are compared."""


def compare_tables(tables: Sequence[ValueTable | None]) -> SectionComparison:
    """The comparison of one table per run; None for a run without one."""
    known = [table for table in tables if table is not None]
    unknown = tuple(place for place, table in enumerate(tables) if table is None)
    if len(known) < 2:
        return SectionComparison((), 0, unknown)
    found, num_same = [], 0
    for key in dict.fromkeys(key for table in known for key in table):
        if _is_same_everywhere(key, known):
            num_same += 1
        else:
            sides = tuple(None if table is None else table.get(key) for table in tables)
            found.append(Difference(key, sides))
    return SectionComparison(tuple(found), num_same, unknown)


def _is_same_everywhere(key: str, tables: Sequence[ValueTable]) -> bool:
    first, *others = (table.get(key) for table in tables)
    return all(
        first is other or (first and other and is_equal_value(first.value, other.value))
        for other in others
    )


def is_equal_value(one: object, other: object) -> bool:
    """Whether two plain values are equal: 1 is 1.0, NaN is NaN, true is not 1."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(
            is_equal_value(one[key], other[key]) for key in one
        )
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_equal_value, one, other))
    if isinstance(one, float) and isinstance(other, float) and one != one:
        return other != other
    return isinstance(one, bool) == isinstance(other, bool) and one == other


SEED = "seed"
_IGNORED_KEYS = (SEED, "tag", "desc", "record")
_TYPE_OF_ELEMENT = re.compile(r"(.+)\.(\d+)\.type")


def read_settings(record: RunRecord) -> dict[str, RunValue]:
    """Every value of a run's config by dotted key, defaults included, with its origin.

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
    """The seed of a run and its origin; None if it is lost."""
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


_NOT_HARDWARE = ("packages", "git", "python", "executable", "environment")
_JOB_VARIABLES = (
    "SLURM_JOB",
    "SLURM_ARRAY",
    "SLURM_RESTART",
    "MASTER_",
    "TORCHELASTIC_",
    "EPOCHAL_",
)
"""Variables that differ in every job."""

_CACHE = "_CACHE_DIR"


def package_table(record: RunRecord) -> ValueTable | None:
    """The version of each package, of Python and of Epochal."""
    machine = as_mapping(record.run.get("machine"))
    versions = {"python": machine.get("python"), **as_mapping(machine.get("packages"))}
    versions |= {name: record.run.get(name) for name in ("epochal", "torch")}
    return {name: RunValue(value) for name, value in versions.items() if value is not None} or None


def hardware_table(record: RunRecord) -> ValueTable | None:
    """The machine and the device: names, cores, memory, drivers."""
    machine = as_mapping(record.run.get("machine"))
    facts = {name: value for name, value in machine.items() if name not in _NOT_HARDWARE}
    device = as_mapping(record.run.get("device"))
    facts |= {"device" if name == "device" else f"device {name}": device[name] for name in device}
    return {name: RunValue(value) for name, value in iter_leaves(facts)} or None


def environment_table(record: RunRecord) -> ValueTable | None:
    """The environment variables that may change what is computed."""
    found = as_mapping(record.run.get("machine")).get("environment")
    if not isinstance(found, Mapping):
        return None
    return {
        name: RunValue(found[name])
        for name in found
        if not name.startswith(_JOB_VARIABLES) and not name.endswith(_CACHE)
    }


def data_table(record: RunRecord) -> ValueTable | None:
    """The fingerprint of the data by split, and the task's metadata."""
    data = as_mapping(record.run.get("data"))
    if not data:  # older records have it in checkpoints only
        found = find_checkpoints(record.path / CHECKPOINTS_DIR)
        data = as_mapping(found[-1].data) if found else {}
    facts = {**data, "meta": record.run.get("meta", {})}
    known = {name: value for name, value in iter_leaves(facts) if value not in ({}, [])}
    return {name: RunValue(value) for name, value in known.items()} or None


def git_table(record: RunRecord) -> ValueTable:
    """The commit and branch of the code, and whether it has uncommitted changes."""
    git = as_mapping(as_mapping(record.run.get("machine")).get("git"))
    return {name: RunValue(git[name]) for name in ("commit", "branch", "dirty") if name in git}
