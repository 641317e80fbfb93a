"""Whether what a config watches is ever evaluated, and what needs a monitor has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.check.classes import class_definitions
from epochal.check.methods import attributes_of, find_method
from epochal.check.monitor import AVERAGED, Watched, find_watched
from epochal.check.sections import split_names

if TYPE_CHECKING:
    from collections.abc import Collection

    from epochal.check.walk import Walk
    from epochal.config.node import Node
    from epochal.registry.parsed_module import Definition

_TRAIN = "epochal.engine.runner.Train"
_MODULE_TASK = "epochal.engine.task.ModuleTask"
_WATCHERS = (
    "epochal.hooks.early_stopping.EarlyStopping",
    "torch.optim.lr_scheduler.ReduceLROnPlateau",
)


def check_watched(
    walk: Walk, root: Node, task: Definition | None, given: Collection[str] = ()
) -> None:
    """Report watched metrics that nothing measures, and watchers without a monitor.

    Only where the text shows everything: with our own loop, and no code that may evaluate.
    """
    runner = walk.factories.get("runner")
    if runner is None or runner.dotted != _TRAIN or task is None or "hooks" in given:
        return
    node = root.mapping.get("monitor")
    if (node is None or node.value is None) and not walk.mistakes.is_broken("monitor"):
        _check_watchers(walk, root, task)
    for watched in find_watched(walk, root):
        section = watched.key if watched.target else "monitor"
        if not walk.mistakes.has_any(section) and not _lacks_average(walk, root, watched, given):
            _check_split(walk, root, task, watched)


def _check_watchers(walk: Walk, root: Node, task: Definition) -> None:
    if find_method(task, "post_metric_to_err", walk.registry.library) is not False:
        return
    for path, factory in walk.factories.items():
        if factory.dotted in _WATCHERS:
            node = root.find(f"{path}.type")
            place = node.place if node is not None else None
            what = f"{factory.qualname} watches the run's monitor, and there is none"
            hint = "add monitor: -val/loss, or +val/acc if larger is better"
            walk.mistakes.report(path, what, place, hint)


def _lacks_average(walk: Walk, root: Node, watched: Watched, given: Collection[str]) -> bool:
    """Whether a metric is that of averaged weights, and nobody averages any; that is reported."""
    written, _, rest = watched.metric.partition("/")
    has_average = "average" in {*root.mapping, *given} or walk.mistakes.is_broken("average")
    if written != AVERAGED or has_average:
        return False
    hint = f"add average: {{type: ema}}, or write {watched.spell(f'val/{rest}')}"
    walk.mistakes.report(watched.key, "nothing averages the weights", watched.place, hint)
    return True


def _check_split(walk: Walk, root: Node, task: Definition, watched: Watched) -> None:
    written, slash, rest = watched.metric.partition("/")
    written = "val" if written == AVERAGED else written
    split = split_names(walk.registry.library).get(written, "")
    if split == "train" or _may_evaluate(walk, task):
        return
    what, hint = "", ""
    if not slash or split != written:
        meant = f"{split}/{rest}" if split and slash else f"val/{watched.metric}"
        what = f"{watched.metric!r} does not start with a split"
        hint = f"write {watched.spell(meant)}"
    elif split == "predict" or not _is_evaluated(walk, root, split):
        what = f"nothing evaluates {split!r} while training"
        hint = _cadence(split)
    elif split == "val" and _lacks_val(root, task):
        what, hint = "there is no data.val to evaluate", "add data.val, or write -train/loss"
    if what:
        walk.mistakes.report(watched.key, what, watched.place, hint)


def _cadence(split: str) -> str:
    known = {"val": "{val: 1ep}", "test": "{val: 1ep, test: 1ep}"}
    return f"set train.eval_every: {known[split]}" if split in known else "monitor val/... instead"


def _is_evaluated(walk: Walk, root: Node, split: str) -> bool:
    """Whether ``train`` says that a split is evaluated; also if that cannot be told."""
    if walk.mistakes.has_any("train") or walk.mistakes.is_broken("train.eval_every"):
        return True
    every = root.find("train.eval_every")
    if every is None:
        return True
    names = split_names(walk.registry.library)
    periods = {names.get(name, name): child.value for name, child in every.mapping.items()}
    if not every.is_mapping:
        periods = {"val": every.value}
    ends = [root.find(f"train.{name}") for name in ("eval_at_start", "eval_at_end")]
    at_an_end = any(node is None or node.value is not False for node in ends)
    return split in periods and (at_an_end or periods[split] not in (0, "0"))


def _may_evaluate(walk: Walk, task: Definition) -> bool:
    """Whether some code besides our own may evaluate, or give the task further loaders."""
    library = walk.registry.library
    definitions = [task]
    for factory in walk.factories.values():
        if factory.kind in ("hook", "updater"):
            found = library.find_definition(factory.dotted) if factory.file is not None else None
            if found is None:
                return True
            definitions.append(found)
    for definition in definitions:
        chain, complete = class_definitions(definition, library)
        own = [item for item in chain if item.module.name.split(".")[0] != "epochal"]
        if not complete or any("evaluate" in attributes_of(item.module, library) for item in own):
            return True
    return False


def _lacks_val(root: Node, task: Definition) -> bool:
    data, folds = root.mapping.get("data"), root.find("train.folds")
    if folds is not None and folds.value is not None:  # each of them holds out its own
        return False
    return task.dotted == _MODULE_TASK and data is not None and "val" not in data.mapping
