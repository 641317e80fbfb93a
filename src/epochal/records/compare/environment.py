"""What runs ran on and with: packages, hardware, data, as their records tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from epochal.records.compare.difference import RunValue
from epochal.records.folder.checkpoint_manifests import find_checkpoints
from epochal.records.layout.coerce import as_mapping
from epochal.records.layout.config_leaves import iter_leaves

if TYPE_CHECKING:
    from epochal.records.compare.difference import ValueTable
    from epochal.records.folder.record import RunRecord

_NO_HARDWARE = ("packages", "git", "python", "executable", "environment")
_OF_ONE_JOB = ("SLURM_JOB", "SLURM_ARRAY", "SLURM_RESTART", "MASTER_", "TORCHELASTIC_", "EPOCHAL_")
"""Variables that name a job and are others in every one."""

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
    facts = {name: value for name, value in machine.items() if name not in _NO_HARDWARE}
    device = as_mapping(record.run.get("device"))
    facts |= {"device" if name == "device" else f"device {name}": device[name] for name in device}
    return {name: RunValue(value) for name, value in iter_leaves(facts)} or None


def environment_table(record: RunRecord) -> ValueTable | None:
    """The variables of the environment that may change what is computed; there may be none."""
    found = as_mapping(record.run.get("machine")).get("environment")
    if not isinstance(found, Mapping):
        return None
    return {
        name: RunValue(found[name])
        for name in found
        if not name.startswith(_OF_ONE_JOB) and not name.endswith(_CACHE)
    }


def data_table(record: RunRecord) -> ValueTable | None:
    """The fingerprint of the data by split, and what the task says about it."""
    data = as_mapping(record.run.get("data"))
    if not data:  # older records keep it with their checkpoints only
        found = find_checkpoints(record.path / "checkpoints")
        data = as_mapping(found[-1].data) if found else {}
    facts = {**data, "meta": record.run.get("meta", {})}
    known = {name: value for name, value in iter_leaves(facts) if value not in ({}, [])}
    return {name: RunValue(value) for name, value in known.items()} or None


def git_table(record: RunRecord) -> ValueTable:
    """The commit that the code was based on, and whether it was changed since."""
    git = as_mapping(as_mapping(record.run.get("machine")).get("git"))
    return {name: RunValue(git[name]) for name in ("commit", "branch", "dirty") if name in git}
