"""Rules that types cannot express, such as files that must exist and contradicting options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.check.sections.pipes import check_url
from epochal.check.sections.schedule import check_schedules, read_length
from epochal.check.sections.sections import read_table, split_names
from epochal.config.bounds import Above, explain
from epochal.config.checkpoint_name import check_template
from epochal.config.node_range import parse_nodes
from epochal.config.scalar import REDACTED
from epochal.durable.remote import is_url, to_local
from epochal.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.check.values.checker import ConfigChecker
    from epochal.config.node import Node
    from epochal.errors import Place

_TIMES = {
    "train.max_time": "24h or 90min",
    "engine.hang_after": "30min, or 0",
    "engine.grace_period": "25s, or 0",
    "log.system_every": "10s, or 0",
    "launch.time": "4h or 90min",
}
_CLIPS = "epochal.engine.interfaces.options:CLIPS"
_STAGE_SPLITS = {"outputs": ("val", "test", "predict"), "evaluation": ("val", "test")}
_NOT_WITH_FSDP = {
    "engine.step": (
        ("auto", "eager"),
        "steps can only run eagerly",
        "write step: eager, or leave it out",
    ),
    "engine.microbatch": (
        (),
        "every process must take the same number of forward passes",
        "write a smaller batch_size, and optim.accumulate",
    ),
    "engine.check_ranks": ((0, "0"), "there are no copies of weights to compare", "leave it out"),
    "engine.find_unused": ((False,), "it is not needed", "leave it out"),
    "optim.noise": ((), "noise would depend on the number of processes", "leave it out"),
}
"""Options of which only some values are possible, with the reason and a hint."""

_ONLY_WITH_FSDP: dict[str, object] = {
    "fsdp_wrap": [],
    "fsdp_precision": None,
    "fsdp_reduce": "fp32",
    "fsdp_reshard": True,
    "fsdp_offload": False,
    "tensor_parallel": 1,
    "tensor_plan": {},
}
"""Options that nothing else reads, with their defaults."""

_FOR_PEOPLE = ("project", "tag", "desc")
_IS_PATH = re.compile(r"[/\\.]")
_WITH_WEIGHTS = ("manifest.json", "run.json", "checkpoints")


def check_rules(checker: ConfigChecker, root: Node) -> None:
    """Report values that have the right type, but are invalid."""
    _check_weights(checker, root)
    _check_times(checker, root)
    _check_nodes(checker, root)
    _check_evaluated_splits(checker, root)
    _check_endless_evaluation(checker, root)
    check_schedules(checker, root)
    _check_precision(checker, root)
    _check_average(checker, root)
    _check_compile_mode(checker, root)
    _check_fsdp(checker, root)
    _check_names(checker, root)
    _check_clip(checker, root)
    _check_folds(checker, root)
    _check_redacted(checker, root)


def _check_weights(checker: ConfigChecker, root: Node) -> None:
    section = root.get("init_from")
    node = section.mapping.get("path", section)
    if not isinstance(node.value, str) or checker.is_known_bad("init_from"):
        return
    key = "init_from" if node is section else "init_from.path"
    if is_url(node.value):
        check_url(checker, key, node)
        return
    path = to_local(node.value)
    what, hint = "", ""
    if path.is_dir() and not any((path / name).exists() for name in _WITH_WEIGHTS):
        what = "is a folder, but neither a run nor a checkpoint"
        hint = f"write {node.value}/FILE for a file with weights in it"
    elif not path.exists():
        what = "no such file"
        hint = f"relative paths start from the current folder, {Path.cwd()}"
        if not _IS_PATH.search(node.value):
            hint = f"for a run, write its folder: `epochal show {node.value}` prints it"
    if what:
        checker.report(key, f"{what}: {node.value!r}", node.place, hint)


def _check_times(checker: ConfigChecker, root: Node) -> None:
    for key, examples in _TIMES.items():
        node = root.get(key)
        length = read_length(node.value)
        if length is not None and not length.is_time and not checker.has_any(key):
            what = f"must be a time, got {node.value!r}"
            checker.report(key, what, node.place, f"write for example {examples}")


def _check_nodes(checker: ConfigChecker, root: Node) -> None:
    node = root.get("launch.nodes")
    if checker.has_any("launch.nodes"):
        return
    try:
        parse_nodes(node.to_plain())
    except ValueError as error:
        checker.report("launch.nodes", str(error), node.place, "write 2, or 1:3 on Ray")


def _check_average(checker: ConfigChecker, root: Node) -> None:
    """Report an average of weights that would begin after the training."""
    start, end = root.get("average.start"), root.get("train.for")
    first, last = read_length(start.value), read_length(end.value)
    if "stages" in root.mapping or first is None or last is None:
        return
    if first.unit == last.unit and first.amount >= last.amount:
        what = f"nothing would be averaged: the training ends after {end.value}"
        checker.report("average.start", what, start.place, "write an earlier start")


def _check_compile_mode(checker: ConfigChecker, root: Node) -> None:
    """Report a mode of inductor with another backend of torch.compile."""
    backend, mode = root.get("engine.compile_backend"), root.get("engine.compile_mode")
    if backend.value in (None, "inductor") or mode.value in (None, "default"):
        return
    what = f"{mode.value!r} is a mode of the backend inductor, not of {backend.value!r}"
    checker.report("engine.compile_mode", what, mode.place, "leave out one of them")


def _check_fsdp(checker: ConfigChecker, root: Node) -> None:
    """Report options that do not work with sharded parameters, or only with them."""
    engine = root.get("engine")
    if engine.get("strategy").value == "auto":  # a run may be resumed with ddp or none
        for name, default in _ONLY_WITH_FSDP.items():
            key, node = f"engine.{name}", engine.get(name)
            if node.to_plain() not in (None, default) and not checker.has_any(key):
                what, hint = "has no effect without strategy: fsdp", "add engine.strategy=fsdp"
                checker.report(key, what, node.place, hint)
    if engine.get("strategy").value != "fsdp":
        return
    for key, (used, what, hint) in _NOT_WITH_FSDP.items():
        node = root.get(key)
        if node.value is not None and node.value not in used and not checker.has_any(key):
            checker.report(key, f"with strategy: fsdp {what}", node.place, hint)
    plan, size = engine.get("tensor_plan"), engine.get("tensor_parallel")
    if size.value == 1 and plan.mapping:
        what = "with tensor_parallel: 1 no layer is divided"
        checker.report("engine.tensor_plan", what, plan.place, "write tensor_parallel: 2")
    elif isinstance(size.value, int) and size.value > 1 and not plan.mapping:
        what, hint = "has no layers to divide", "add tensor_plan: {blocks.*.up: colwise, ...}"
        checker.report("engine.tensor_parallel", what, size.place, hint)


def _check_names(checker: ConfigChecker, root: Node) -> None:
    node = root.get("checkpoint.name")
    if not isinstance(node.value, str):
        return
    try:
        check_template(node.value)
    except ValueError as error:
        what, _, hint = str(error).partition("\n")
        checker.report("checkpoint.name", f"{node.value!r} {what}", node.place, hint)


def _check_evaluated_splits(checker: ConfigChecker, root: Node) -> None:
    names = split_names(checker.finder)
    for name, child in root.get("train.eval_every").mapping.items():
        if names.get(name) in ("train", "predict"):
            key = f"train.eval_every.{name}"
            what = f"{name!r} is not evaluated"
            checker.report(key, what, child.key_place, "write val or test")


def _check_endless_evaluation(checker: ConfigChecker, root: Node) -> None:
    """Report a chain to validate on that never ends, if nothing limits an evaluation."""
    every = root.get("train.eval_every")
    is_limited = root.get("train.limit_eval_batches").value is not None
    if is_limited or every.is_mapping or str(every.value) == "0":
        return
    endless: tuple[str, Place] | None = None
    for number, pipe in enumerate(root.get("data.val.pipes").elements):
        written = pipe.mapping.get("type", pipe)
        if written.value == "repeat" and pipe.get("times").value is None:
            endless = f"data.val.pipes.{number}.type", written.place
        elif written.value == "take" or pipe.get("stop").value is not None:
            endless = None
    if endless is not None:
        hint = "set train.limit_eval_batches, or give repeat its times"
        checker.report(endless[0], "'repeat' never ends", endless[1], hint)


def _check_precision(checker: ConfigChecker, root: Node) -> None:
    """Report a dtype of the weights that contradicts the precision."""
    precision, dtype = root.find("engine.precision"), root.find("model.dtype")
    if precision is None or dtype is None or dtype.layer == "default":
        return
    is_double = dtype.value == "float64"
    hint = "remove engine.precision, or compute with model.dtype: float32"
    if precision.value == "fp64":
        hint = "remove model.dtype, or write float64"
    needs_double = {"fp64": True, "tf32": False, "bf16": False, "fp16": False}
    if is_double == needs_double.get(str(precision.value), is_double):
        return
    what = f"{precision.value!r} contradicts model.dtype {dtype.value!r}"
    checker.report("engine.precision", what, precision.place, hint)


def _check_clip(checker: ConfigChecker, root: Node) -> None:
    """Report a limit of the gradient that is not one number above zero, by norm or by value."""
    node = root.get("optim.clip")
    if not node.is_mapping or checker.has_any("optim.clip"):
        return
    kinds: list[str] = list(read_table(_CLIPS, checker.finder))
    for name, child in node.mapping.items():
        key = f"optim.clip.{name}"
        if name not in kinds:
            close = nearest(name, kinds)
            hint = f"did you mean {close!r}?" if close else "write {norm: 1.0} or {value: 0.5}"
            checker.report(key, f"cannot clip by {name!r}", child.key_place, hint)
        elif isinstance(child.value, int | float) and not child.value > 0:
            what, hint = explain(child.value, Above(0))
            checker.report(key, what, child.place, hint)
    if len(node.mapping) != 1:
        hint = "write {norm: 1.0} or {value: 0.5}"
        checker.report("optim.clip", "takes one limit", node.place, hint)


def _check_folds(checker: ConfigChecker, root: Node) -> None:
    """Report keys that need cross-validation, and a fold that does not exist."""
    folds = root.find("train.folds")
    if folds is None or checker.has_any("train.folds"):
        return
    if folds.value is not None:
        _check_data_of_stages(checker, root)
    for name in ("fold", "stratify"):
        node = root.get(f"train.{name}")
        if node.value is None or checker.has_any(f"train.{name}"):
            continue
        if folds.value is None:
            what = "has no effect without train.folds"
            checker.report(f"train.{name}", what, node.key_place, "add folds: 5")
        elif name == "fold" and isinstance(node.value, int) and node.value > int(str(folds.value)):
            what = f"there is no fold {node.value} of {folds.value}"
            checker.report("train.fold", what, node.place, "write a number up to train.folds")


def _check_data_of_stages(checker: ConfigChecker, root: Node) -> None:
    """Report data of a stage, which could contain the samples that a fold holds out."""
    for index, stage in enumerate(root.get("stages").elements):
        for split, node in stage.get("data").mapping.items():
            if split in ("train", "val"):
                key, what = f"stages.{index}.data.{split}", "would replace the data of a fold"
                hint = "remove it, or make the folds in the task"
                checker.report(key, what, node.key_place, hint)


def _check_redacted(checker: ConfigChecker, root: Node) -> None:
    """Report secrets that were removed when the config was recorded."""
    for key, node in root.iter_leaves():
        if isinstance(node.value, str) and REDACTED in node.value and key not in _FOR_PEOPLE:
            hint = f"give it again as {key}=VALUE, or write ${{env:NAME}} in the config"
            checker.report(key, "was a secret, which records do not keep", node.place, hint)


def check_splits(checker: ConfigChecker, root: Node) -> None:
    """Report unknown splits in ``on:`` and in ``train.eval_every``, and stages without outputs."""
    known = split_names(checker.finder)
    for path, name, place in _listed(root):
        valid = _STAGE_SPLITS.get(path.partition(".")[0], tuple(known.values()))
        if known.get(str(name), valid[0]) not in valid:
            what = f"{path.partition('.')[0]} have no stages in {name!r}"
            checker.report(path, what, place, f"write {' or '.join(valid)}")
    for path, name, place in _listed(root):
        if isinstance(name, str) and name not in known:
            close = nearest(name, known)
            hint = f"did you mean {close!r}?" if close else "known: train, val, test, predict"
            checker.report(path, f"unknown split {name!r}", place, hint)


def _listed(root: Node) -> Iterator[tuple[str, object, Place]]:
    for section in ("hooks", "metrics", *_STAGE_SPLITS):
        for index, entry in enumerate(root.get(section).elements):
            for position, child in enumerate(entry.get("on").elements):
                yield f"{section}.{index}.on.{position}", child.value, child.place
    for name, child in root.get("train.eval_every").mapping.items():
        yield f"train.eval_every.{name}", name, child.key_place
