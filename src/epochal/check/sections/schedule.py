"""Checks the section ``schedule``: lengths that do not fit the run, and keys that need others."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import TYPE_CHECKING

from epochal.check.sections.sections import SECTIONS
from epochal.config.duration import Duration, parse_duration
from epochal.errors import COMMAND_LINE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.check.values.checker import ConfigChecker
    from epochal.config.node import Node

    Mistake = tuple[str, str, str]  # key in the section, what is wrong, what to do

_PATHS = re.compile(r"schedule|stages\.\d+\.schedule|optim\.[^.]+\.schedule")
_OURS, _TORCHS = "epochal.components.schedules.", "torch.optim.lr_scheduler."
_LENGTHS = ("warmup", "over", "every", "timescale", "decay")
_OF_THE_RUN = tuple(
    f"{_OURS}{name}" for name in ("Linear", "Cosine", "Polynomial", "OneCycle", "Wsd")
)


def check_schedules(checker: ConfigChecker, root: Node) -> None:
    """Report mistakes in the schedules of the run, its stages and its optimizers."""
    for path, factory in checker.factories.items():
        node = root.find(path) if _PATHS.fullmatch(path) else None
        if node is None or checker.has_any(path):
            continue
        dotted = factory.dotted
        whole = _length_of(root, path)
        wrong = (*_wrong_for(node, dotted, whole), *_too_long_for_limit(node, root, whole))
        for key, what, hint in (*_wrong_lengths(node, dotted), *_missing(node, dotted), *wrong):
            is_written = key in node.mapping and node.mapping[key].layer != "default"
            place = node.mapping[key if is_written else "type"].place
            checker.report(f"{path}.{key}", what, place, hint)


def _wrong_lengths(node: Node, dotted: str) -> Iterator[Mistake]:
    """Lengths that are not in steps or epochs, or do not ascend."""
    if dotted.startswith(_OURS) and node.get("unit").value == "eval":
        what = "'eval' is for schedulers of torch; others use step or epoch"
        yield "unit", what, "write epoch, or remove it"
    for key in _LENGTHS if dotted.startswith((_OURS, _TORCHS)) else ("warmup",):
        length = read_length(node.get(key).value)
        if length is not None and length.unit not in ("st", "ep"):
            what = f"must be in steps or epochs, got {str(length)!r}"
            yield key, what, f"write for example {key}: 500st"
    lengths = [read_length(one.value) for one in node.get("milestones").elements]
    for earlier, later in pairwise(lengths):
        if earlier and later and earlier.unit == later.unit and later.amount <= earlier.amount:
            what = f"must ascend, but {later} follows {earlier}"
            yield "milestones", what, "write them in order, each once"


def _missing(node: Node, dotted: str) -> Iterator[Mistake]:
    """Keys that another key needs."""
    has_warmup = bool(node.get("warmup").value)
    default = next(key.default for key in SECTIONS["schedule"].keys if key.name == "warmup_start")
    if node.get("warmup_start").value not in (default, None) and not has_warmup:
        yield "warmup_start", "does nothing without a warm-up", "add warmup: 500st"
    if dotted == f"{_OURS}Noam" and not has_warmup:
        yield "warmup", "missing; noam rises over it", "add warmup: 4000st"
    if dotted == f"{_OURS}InverseSqrt" and not has_warmup and not node.get("timescale").value:
        what = "missing; without a warm-up it has no default"
        yield "timescale", what, "add warmup: 1000st, or timescale: 1000st"
    if dotted == f"{_TORCHS}OneCycleLR":
        has_both = (
            node.get("epochs").value is not None and node.get("steps_per_epoch").value is not None
        )
        if not has_both and node.get("total_steps").value is None:
            what = "missing; OneCycleLR must know the number of steps"
            yield "total_steps", what, "add total_steps: 500, with train: {for: 500st}"


def _wrong_for(node: Node, dotted: str, whole: Node | None) -> Iterator[Mistake]:
    """Lengths that do not fit the length of the training, if the config sets that."""
    length = None if whole is None else read_length(whole.value)
    if whole is None or length is None:
        return
    warmup, decay = read_length(node.get("warmup").value), read_length(node.get("decay").value)
    # A length on the command line is for a trial run, which warns when it starts.
    is_fixed = whole.layer != COMMAND_LINE
    if is_fixed and warmup and warmup.unit == length.unit and warmup.amount >= length.amount:
        what = f"the warm-up takes {warmup}, and the training only {length}"
        yield "warmup", what, "make the warm-up shorter, or the training longer"
    if is_fixed and decay and decay.unit == length.unit and decay.amount > length.amount:
        what = f"the decay takes {decay}, and the training only {length}"
        yield "decay", what, "make it shorter, or the training longer"
    total = read_length(node.get("total_steps").value) if dotted == f"{_TORCHS}OneCycleLR" else None
    is_first = not node.get("warmup").value  # else it begins later
    if is_fixed and is_first and total and length.unit == "st" and total.amount < length.amount:
        what = f"OneCycleLR ends after {total.amount} steps, and the training after {length}"
        yield "total_steps", what, "make both the same"
    if dotted in _OF_THE_RUN and length.is_time and node.get("over").value is None:
        what = f"missing; the number of steps in {length} is not known in advance"
        yield "over", what, "add over: 10000st, or end the training by steps or epochs"


def _too_long_for_limit(node: Node, root: Node, whole: Node | None) -> Iterator[Mistake]:
    """A warm-up in steps that epochs of a limited number of batches do not reach."""
    epochs = None if whole is None else read_length(whole.value)
    warmup, limit = read_length(node.get("warmup").value), root.get("train.limit_batches")
    if whole is None or not epochs or not warmup or COMMAND_LINE in (whole.layer, limit.layer):
        return
    batches, accumulate = limit.value, root.get("optim.accumulate").value
    if (epochs.unit, warmup.unit) == ("ep", "st") and isinstance(batches, int) and batches > 0:
        per_step = accumulate if isinstance(accumulate, int) and accumulate > 0 else 1
        most = math.ceil(batches / per_step) * epochs.amount
        if warmup.amount >= most:
            what = f"the warm-up takes {warmup}, and {epochs} of {batches} batches only {most}st"
            yield "warmup", what, "make the warm-up shorter, or the training longer"


def _length_of(root: Node, path: str) -> Node | None:
    """How long the schedule is used, if one key sets that."""
    if path.startswith("stages."):
        node = root.find(f"{path.rpartition('.')[0]}.for")
    else:
        node = None if "stages" in root.mapping else root.find("train.for")
    # A number without a unit is not a length; it is reported as another mistake.
    return node if node is not None and isinstance(node.value, str) else None


def read_length(value: object) -> Duration | None:
    """A duration or a number of steps; None for anything else, which its type reports."""
    try:
        if isinstance(value, str):
            return parse_duration(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return Duration(value, "st")
    except ValueError:
        return None
    return None
