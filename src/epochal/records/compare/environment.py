"""Tables of the packages, hardware, environment, data and git state of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from epochal.records.compare.difference import RunValue
from epochal.records.folder.checkpoint_manifests import find_checkpoints
from epochal.records.layout.coerce import as_mapping, iter_leaves

if TYPE_CHECKING:
    from epochal.records.compare.difference import ValueTable
    from epochal.records.folder.record import RunRecord

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
        found = find_checkpoints(record.path / "checkpoints")
        data = as_mapping(found[-1].data) if found else {}
    facts = {**data, "meta": record.run.get("meta", {})}
    known = {name: value for name, value in iter_leaves(facts) if value not in ({}, [])}
    return {name: RunValue(value) for name, value in known.items()} or None


def git_table(record: RunRecord) -> ValueTable:
    """The commit and branch of the code, and whether it has uncommitted changes."""
    git = as_mapping(as_mapping(record.run.get("machine")).get("git"))
    return {name: RunValue(git[name]) for name in ("commit", "branch", "dirty") if name in git}
