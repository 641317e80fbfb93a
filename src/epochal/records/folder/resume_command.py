"""Finds the command that resumes a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochal import durable
from epochal.errors import DIVERGED
from epochal.records.folder.checkpoint_manifests import find_checkpoints
from epochal.records.folder.experiment_facts import find_unnamed_class
from epochal.records.folder.folder import CHECKPOINTS_DIR, FOLDS_DIR
from epochal.registry.project_file import name_run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_CHANGE_HINT = "optim.lr=... --allow-changed"


def find_resume_command(folder: Path, epochal: str = "epochal") -> str:
    """What to type to resume the run in a folder; empty if it has no checkpoint.

    A run that diverged needs a change, else it would diverge again.

    Args:
        folder: The folder of the run.
        epochal: How to call the command line.
    """
    folders = (folder, *folder.glob(f"{FOLDS_DIR}/*"))
    if not any(find_checkpoints(one / CHECKPOINTS_DIR) for one in folders):
        return ""
    facts = durable.find_object(folder / "run.json")
    if facts.get("given") or find_unnamed_class(facts):  # only its script has all parts
        return f"run the script again, with choices={{'resume': {str(folder)!r}}}"
    has_diverged = durable.find_object(folder / "status.json").get("status") == DIVERGED
    command = f"{epochal} resume {name_run(folder)}{_describe_processes(facts)}"
    return command + f" {_CHANGE_HINT}" * has_diverged


def _describe_processes(facts: Mapping[str, Any]) -> str:
    """The option for as many processes as the run had, if all were on one machine."""
    machine = facts.get("machine")
    variables = machine.get("environment") if isinstance(machine, dict) else None
    if not isinstance(variables, dict):  # the file may be damaged
        return ""
    count = str(variables.get("WORLD_SIZE"))
    is_here = count.isdecimal() and count == variables.get("LOCAL_WORLD_SIZE")
    return f" --nproc {count}" if is_here and int(count) > 1 else ""
