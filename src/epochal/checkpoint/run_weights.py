"""Chooses weights of a run: the best, the last, the final ones, those of a step, or of a file."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal import durable
from epochal.checkpoint.weights import (
    FINAL_WEIGHTS_FILE,
    apply_tensors,
    load_weights_from,
    locate_weights,
)
from epochal.errors import CheckpointError, suggest
from epochal.records.folder.checkpoint_manifests import (
    find_best_checkpoint,
    find_checkpoints,
    find_newest_checkpoint,
)
from epochal.records.folder.folder import CHECKPOINTS_DIR
from epochal.records.layout.os_errors import describe_os_error
from epochal.text.formatting import format_value

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from epochal.records import RunRecord
    from epochal.records.folder.checkpoint_manifests import CheckpointDamage, CheckpointManifest

logger = logging.getLogger(__name__)

BEST, LAST, FINAL = "best", "last", "final"
_AVERAGED_PREFIX = "val_ema/"
"""Prefix of metrics of averaged weights."""


@final
@dataclass(frozen=True, slots=True)
class RunWeights:
    """The weights of a run that were chosen."""

    path: Path
    """A weights file, or the folder of a checkpoint."""

    name: str
    """``best``, ``last``, ``final``, or what was asked for."""

    checkpoint: CheckpointManifest | None = None
    is_averaged: bool = False
    """Whether they are the averaged weights of the checkpoint."""

    @property
    def init_from(self) -> str | dict[str, object]:
        """The value of the config's key ``init_from`` that loads them."""
        path = str(self.path)
        return {"path": path, "try_ema": True} if self.is_averaged else path

    @override
    def __str__(self) -> str:
        at = self.checkpoint
        if at is None:
            return self.name if self.name == FINAL else str(self.path)
        facts = [f"step {at.step:,}"]
        if at.monitor in at.metrics:
            facts.append(f"{at.monitor} {format_value(at.metrics[at.monitor])}")
        kind = ", averaged" * self.is_averaged
        name = self.name if self.name in (BEST, LAST) else at.name
        return f"{name} ({', '.join(facts)}){kind}"

    def load_into(self, model: nn.Module) -> None:
        """Load them into a model, all or none; CheckpointError if they do not fit."""
        tensors, source = load_weights_from(self.path, try_ema=self.is_averaged)
        apply_tensors(model, tensors, source)


def choose_run_weights(record: RunRecord, wanted: str | int | Path | None = None) -> RunWeights:
    """The weights of a run; by default the best ones, without a monitor the final ones.

    A run that has neither, because it was killed, has those of its newest checkpoint.

    Args:
        record: The run.
        wanted: ``best``, ``last`` (the newest checkpoint), ``final``, a step, the name of a
            checkpoint, or a path to weights.

    Raises:
        CheckpointError: There are no such weights.
    """
    folder = record.path / CHECKPOINTS_DIR
    if wanted is None:
        found = _find_best(record) or _find_final(folder)
        found = found or _find_last(folder)
        if found is None:
            hint = "they are saved as the run trains, and `runs prune` may have deleted them"
            raise _no_weights(record, "has no weights", hint)
        return found
    text = str(wanted)
    if text == BEST:
        found = _find_best(record)
        why = "has no best weights: no checkpoint with its monitor was kept"
    elif text == LAST:
        found, why = _find_last(folder), "has no checkpoint"
    elif text == FINAL:
        found = _find_final(folder)
        why = "has no final weights, which are saved when a training ends"
    else:
        return _find_named(folder, text)
    if found is None:
        others = [one for one in (FINAL, LAST, BEST) if one != text]
        raise _no_weights(record, why, f"others are {' and '.join(others)}")
    return found


def _find_best(record: RunRecord) -> RunWeights | None:
    """The best weights, if the run still has them: the best remaining ones may be worse."""
    options = record.expanded.get("checkpoint")
    if isinstance(options, dict) and options.get("keep_best") == 0:
        return None
    found = _warn_of_damage(*find_best_checkpoint(record.path / CHECKPOINTS_DIR))
    if found is None:
        return None
    is_averaged = found.monitor.startswith(_AVERAGED_PREFIX)
    return RunWeights(found.path, BEST, found, is_averaged)


def _find_final(folder: Path) -> RunWeights | None:
    path = folder / FINAL_WEIGHTS_FILE
    try:
        durable.require_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        hint = f"name other weights: {BEST}, {LAST}, or a file"
        raise CheckpointError(f"{path}: {describe_os_error(error)}\n  {hint}") from error
    return RunWeights(path, FINAL)


def _find_last(folder: Path) -> RunWeights | None:
    found = _warn_of_damage(*find_newest_checkpoint(folder))
    return None if found is None else RunWeights(found.path, LAST, found)


def _find_named(folder: Path, name: str) -> RunWeights:
    checkpoints = find_checkpoints(folder)
    for at in reversed(checkpoints):  # of a repeated step, that of the newest attempt
        if name in (str(at.step), at.name):
            return RunWeights(at.path, name, at)
    path = locate_weights(name)
    if path.exists():
        return RunWeights(path, name)
    known = [str(at.step) for at in checkpoints]
    hint = suggest(name, [BEST, LAST, FINAL, *(at.name for at in checkpoints)])
    if name.isdecimal() or not hint.startswith("did you mean"):
        kept = f", or a step that was kept: {', '.join(known)}" if known else ""
        hint = f"name {BEST}, {LAST}, {FINAL}, a file{kept}"
    raise CheckpointError(f"{folder.parent}: has no weights {name!r}\n  {hint}")


def _warn_of_damage(
    found: CheckpointManifest | None, damaged: list[CheckpointDamage]
) -> CheckpointManifest | None:
    for one in damaged:
        logger.warning("%s", one)
    return found


def _no_weights(record: RunRecord, why: str, hint: str) -> CheckpointError:
    if record.folds:
        why, hint = "has no weights, its folds have", f"name one of them: {record.path}/folds/1"
    status = record.summary.status
    return CheckpointError(
        f"{record.path}: {why}; it is {status!r}\n  {hint}; `epochal runs` lists other runs"
    )
