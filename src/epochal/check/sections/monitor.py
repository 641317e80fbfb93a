"""Checks that the run can produce the metrics that a config monitors or waits for."""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.check.sections.losses import TOTAL_LOSS, loss_term_names
from epochal.check.sections.methods import find_attribute_names, has_method, is_set_on_self
from epochal.check.sections.section_shapes import has_members, is_mapping_of_specs
from epochal.check.sections.sections import SECTIONS, split_names
from epochal.check.signatures.classes import binds_name, class_definitions, find_method_node
from epochal.config.condition import Condition, parse_condition
from epochal.errors import nearest
from epochal.registry.module_finder import ModuleFinder, cached_by_finder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from epochal.check.values.checker import ConfigChecker
    from epochal.config.node import Node
    from epochal.errors import Place
    from epochal.registry.parsed_module import Definition, FunctionNode

AVERAGED_SPLIT = "val_ema"
"""Replaces ``val`` in the names of metrics of averaged weights."""

_EVALUATED = ("val", "test", AVERAGED_SPLIT)
_SCORELESS = ("keep_best", "save_examples")
_PRODUCERS = ("batch_metric", "extra_batch_metrics", "epoch_metric")


@final
@dataclass(frozen=True, slots=True)
class ProducedMetrics:
    """The names of metrics that a task is known to produce, by split."""

    train: frozenset[str]
    evaluation: frozenset[str]
    complete: bool
    """False if there may be more names than the source shows."""


@final
@dataclass(frozen=True, slots=True)
class WatchedMetric:
    """A metric that a config names, and where."""

    key: str
    metric: str
    sign: str
    """``+`` or ``-``; empty if the config gives the direction in another way."""

    place: Place
    target: str = ""
    """The value to reach, such as ``>= 0.95``; empty for a monitor."""

    def spell(self, metric: str) -> str:
        """How to write another metric in its place."""
        return f"{metric} {self.target}" if self.target else f"{self.sign}{metric}"


def find_watched_metrics(checker: ConfigChecker, root: Node) -> Iterator[WatchedMetric]:
    """The metrics of the monitor and of all conditions that can be parsed."""
    monitor = _find_monitor(checker, root)
    if monitor is not None:
        yield monitor
    stages = enumerate(root.get("stages").elements)
    keys = ["train.until", *(f"stages.{index}.until" for index, _ in stages)]
    for key in keys:
        until = root.get(key)
        try:
            condition: Condition = parse_condition(str(until.value))
        except ValueError:
            continue  # not set, or reported by its type
        target = str(condition).removeprefix(condition.metric).strip()
        yield WatchedMetric(key, condition.metric, condition.sign, until.place, target)


def _find_monitor(checker: ConfigChecker, root: Node) -> WatchedMetric | None:
    node = root.get("monitor")
    if checker.is_known_bad("monitor"):
        return None
    named = node.mapping.get("metric", node)
    if not isinstance(named.value, str) or checker.is_known_bad("monitor.metric"):
        return None
    key = "monitor" if named is node else "monitor.metric"
    sign = named.value[:1] if named.value[:1] in ("+", "-") else ""
    return WatchedMetric(key, named.value[len(sign) :], sign, named.place)


def check_monitor(checker: ConfigChecker, root: Node, task: Definition | None) -> None:
    """Report a monitor without a direction, and metrics that nothing produces."""
    names = None if task is None else find_produced_metrics(task, root, checker.finder)
    for watched in find_watched_metrics(checker, root):
        if watched.target or _is_directed(checker, root, watched):
            _check_metric(checker, watched, names)


def _is_directed(checker: ConfigChecker, root: Node, watched: WatchedMetric) -> bool:
    """Whether the monitor has one direction; reports it if not."""
    node = root.mapping["monitor"].mapping.get("mode")
    mode = None if node is None else node.value
    sign, text = watched.sign, f"{watched.sign}{watched.metric}"
    if not sign and mode is None:
        name = _with_split(checker, text)
        hint = f"write '+{name}' if larger is better, '-{name}' if smaller is"
        what = f"does not say which way is better: {text!r}"
        checker.report(watched.key, what, watched.place, hint)
        return False
    if node is not None and sign and mode is not None and (sign == "+") != (mode == "max"):
        what = f"{mode!r} contradicts the sign of {text!r}"
        checker.report("monitor.mode", what, node.place, "leave out one of them")
        return False
    return True


def find_produced_metrics(task: Definition, root: Node, finder: ModuleFinder) -> ProducedMetrics:
    """The metrics that the source of a task and the section ``metrics`` show."""
    found = {name: _returned(task, name, finder) for name in (*_PRODUCERS, "batch_loss")}
    section = _section_names(root)
    err = has_method(task, "post_metric_to_err", finder)
    unknown = section is None or err is None or any(names is None for names in found.values())
    computed = {key for name in _PRODUCERS for key in found[name] or ()}
    losses = (found["batch_loss"] or set()) | loss_term_names(root)
    if has_members(SECTIONS["optim"], root.get("optim")):
        losses |= {TOTAL_LOSS}  # the sum of their losses, if the task returns none
    evaluated = computed | (section or set()) | ({"err"} if err else set())
    if computes_eval_loss(root):
        evaluated |= losses
    return ProducedMetrics(frozenset(computed | losses), frozenset(evaluated), not unknown)


def computes_eval_loss(root: Node) -> bool:
    """Whether evaluations compute the loss: the config says so, or watches it and says nothing."""
    chosen = root.get("train.eval_loss").value
    if chosen is not None:
        return chosen is True
    monitor = root.get("monitor")
    names = [str(monitor.mapping.get("metric", monitor).value).lstrip("+-")]
    stages = [root.get(f"stages.{index}") for index, _ in enumerate(root.get("stages").elements)]
    for until in (root.get("train.until"), *(stage.get("until") for stage in stages)):
        with suppress(ValueError):
            names.append(parse_condition(str(until.value)).metric)
    if TOTAL_LOSS in (_section_names(root) or ()):
        return False  # a metric has that name
    parts = [name.split("/") for name in names]
    return any(one[0] in _EVALUATED and one[-1] == TOTAL_LOSS for one in parts)


def loss_names(task: Definition | None, root: Node, finder: ModuleFinder) -> set[str] | None:
    """The losses of a task and of the section ``loss``; None if there may be more."""
    returned = None if task is None else _returned(task, "batch_loss", finder)
    return None if returned is None else returned | loss_term_names(root)


def _check_metric(
    checker: ConfigChecker, watched: WatchedMetric, names: ProducedMetrics | None
) -> None:
    if names is None or not names.complete:
        return
    metric = watched.metric
    split, _, rest = metric.partition("/")
    known = [f"train/{name}" for name in names.train]
    known += [f"val/{name}" for name in names.evaluation]
    name = rest.rpartition("/")[2]
    is_train = split == "train" and name in names.train
    if is_train or (split in _EVALUATED and name in names.evaluation):
        return
    close = nearest(name, names.evaluation) if split in _EVALUATED else None
    close = f"{metric.removesuffix(name)}{close}" if close else nearest(metric, known)
    close = close or nearest(f"val/{metric}", known)
    hint = f"return {name!r} from batch_metric of the task, or add it under metrics"
    if close or known:
        shown = ", ".join(sorted(known)[:12])
        hint = f"did you mean '{watched.spell(close)}'?" if close else f"can be: {shown}"
    if split in ("val", AVERAGED_SPLIT) and name in names.train:
        hint = "set train.eval_loss=true to compute losses in evaluation"
    what = f"nothing produces the metric {metric!r}"
    checker.report(watched.key, what, watched.place, hint)


def _section_names(root: Node) -> set[str] | None:
    names = set[str]()
    for entry in root.get("evaluation").elements:
        if entry.get("type").value not in _SCORELESS:
            return None  # a stage of the user's own may return any metric
    for entry in root.get("metrics").elements:
        name = entry.get("name").value
        if not isinstance(name, str):
            return None  # a metric without a name in the config may have any name
        names.add(name)
    return names


@cached_by_finder
def _returned(task: Definition, method: str, finder: ModuleFinder) -> set[str] | None:
    """The keys of the mappings that a method returns; None if its source does not show them."""
    chain, complete = class_definitions(task, finder)
    for item in chain:
        function = find_method_node(item.node, method)
        if function is not None:
            return None if is_set_on_self(chain, method) else _literal_keys(function)
        if binds_name(item.node, method):
            return None  # assigned in the class body, so its return value is unknown
    return set() if complete and not is_set_on_self(chain, method) else None


def _literal_keys(function: FunctionNode) -> set[str] | None:
    keys = set[str]()
    for node in ast.walk(function):
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return None
        if isinstance(node, ast.Return) and node.value is not None:
            found = _keys_of(node.value, function)
            if found is None:
                return None
            keys |= found
    return keys


def _keys_of(expression: ast.expr, function: FunctionNode) -> set[str] | None:
    if isinstance(expression, ast.Dict):
        values = [getattr(key, "value", None) for key in expression.keys]
        keys = {value for value in values if isinstance(value, str)}
        return keys if all(isinstance(value, str) for value in values) else None
    if isinstance(expression, ast.Call) and getattr(expression.func, "id", "") == "dict":
        words = [word.arg for word in expression.keywords]
        return {w for w in words if w} if all(words) and not expression.args else None
    if isinstance(expression, ast.Constant) and expression.value is None:
        return set()
    if isinstance(expression, ast.Name):
        return _keys_of_variable(expression.id, function)
    return None


def _keys_of_variable(name: str, function: FunctionNode) -> set[str] | None:
    """The keys of a local mapping that only literals and item assignments fill."""
    keys = set[str]()
    uses = sum(1 for node in ast.walk(function) if getattr(node, "id", "") == name)
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if getattr(target, "id", "") == name and isinstance(node.value, ast.Dict):
                found = _keys_of(node.value, function)
                if found is None:
                    return None
                keys |= found
                uses -= 1
            elif isinstance(target, ast.Subscript) and getattr(target.value, "id", "") == name:
                key = getattr(target.slice, "value", None)
                if not isinstance(key, str):
                    return None
                keys.add(key)
                uses -= 1
        elif isinstance(node, ast.Return) and getattr(node.value, "id", "") == name:
            uses -= 1
    return keys if uses == 0 else None  # any other use may add names


_TRAIN = "epochal.engine.runner.Train"
_MODULE_TASK = "epochal.engine.interfaces.task.ModuleTask"
_WATCHERS = (
    "epochal.components.evaluation.KeepBest",
    "epochal.hooks.early_stopping.EarlyStopping",
    "torch.optim.lr_scheduler.ReduceLROnPlateau",
)


def check_watched_metrics(
    checker: ConfigChecker, root: Node, task: Definition | None, given: Collection[str] = ()
) -> None:
    """Report watched metrics that nothing measures, and watchers without a monitor.

    Checks nothing if another runner, or code of the user, may evaluate.
    """
    runner = checker.factories.get("runner")
    if runner is None or runner.dotted != _TRAIN or task is None or "hooks" in given:
        return
    if root.get("monitor").value is None and not checker.is_broken("monitor"):
        _check_watchers(checker, root, task)
    for watched in find_watched_metrics(checker, root):
        section = watched.key if watched.target else "monitor"
        if not checker.has_any(section) and not _lacks_average(checker, root, watched, given):
            _check_split(checker, root, task, watched)


def _check_watchers(checker: ConfigChecker, root: Node, task: Definition) -> None:
    if has_method(task, "post_metric_to_err", checker.finder) is not False:
        return
    for path, factory in checker.factories.items():
        if factory.dotted in _WATCHERS:
            what = f"{factory.qualname} needs a monitor, and the run has none"
            hint = "add monitor: -val/loss, or +val/acc if larger is better"
            checker.report(path, what, root.get(f"{path}.type").place, hint)


def _lacks_average(
    checker: ConfigChecker, root: Node, watched: WatchedMetric, given: Collection[str]
) -> bool:
    """Whether a metric needs averaged weights and the config averages none; reports it if so."""
    written, _, rest = watched.metric.partition("/")
    has_average = "average" in {*root.mapping, *given} or checker.is_broken("average")
    if written != AVERAGED_SPLIT or has_average:
        return False
    hint = f"add average: {{type: ema}}, or write {watched.spell(f'val/{rest}')}"
    checker.report(watched.key, "nothing averages the weights", watched.place, hint)
    return True


def _with_split(checker: ConfigChecker, metric: str) -> str:
    """``val/loss`` for ``val_loss``, as Lightning would name it; any other name as it is."""
    first, _, rest = metric.partition("_")
    split = split_names(checker.finder).get(first)
    return f"{split}/{rest}" if split and rest and "/" not in metric else metric


def _check_split(
    checker: ConfigChecker, root: Node, task: Definition, watched: WatchedMetric
) -> None:
    written, slash, rest = watched.metric.partition("/")
    written = "val" if written == AVERAGED_SPLIT else written
    split = split_names(checker.finder).get(written, "")
    if split == "train" or _may_evaluate(checker, task):
        return
    what, hint = "", ""
    if not slash or split != written:
        meant = f"{split}/{rest}" if split and slash else _with_split(checker, watched.metric)
        if meant == watched.metric:
            meant = f"val/{meant}"
        what = f"{watched.metric!r} does not start with a split"
        hint = f"write {watched.spell(meant)}"
    elif split == "predict" or not _is_evaluated(checker, root, split):
        what = f"nothing evaluates {split!r} while training"
        hint = _cadence(split)
    elif loader_hint := _find_loader_hint(root, watched, split):
        what, hint = loader_hint
    elif split == "val" and _lacks_val(root, task):
        what, hint = "there is no data.val to evaluate", "add data.val, or write -train/loss"
    if what:
        checker.report(watched.key, what, watched.place, hint)


def _find_loader_hint(root: Node, watched: WatchedMetric, split: str) -> tuple[str, str] | None:
    """What is wrong with a metric that names none of the loaders of its split; None if nothing."""
    node = root.get(f"data.{split}")
    rest = watched.metric.partition("/")[2]
    if not is_mapping_of_specs(node) or rest.partition("/")[0] in node.mapping:
        return None
    names = list(node.mapping)
    what = f"each loader of {split} has its own metrics: {', '.join(names)}"
    prefix = watched.metric.partition("/")[0]
    return what, f"write {watched.spell(f'{prefix}/{names[0]}/{rest}')}"


def _cadence(split: str) -> str:
    known = {"val": "{val: 1ep}", "test": "{val: 1ep, test: 1ep}"}
    return f"set train.eval_every: {known[split]}" if split in known else "monitor val/... instead"


def _is_evaluated(checker: ConfigChecker, root: Node, split: str) -> bool:
    """Whether ``train`` evaluates a split, or may do so."""
    if checker.has_any("train") or checker.is_broken("train.eval_every"):
        return True
    every = root.find("train.eval_every")
    if every is None:
        return True
    names = split_names(checker.finder)
    periods = {names.get(name, name): child.value for name, child in every.mapping.items()}
    if not every.is_mapping:
        periods = {"val": every.value}
    ends = [root.find(f"train.{name}") for name in ("eval_at_start", "eval_at_end")]
    at_an_end = any(node is None or node.value is not False for node in ends)
    return split in periods and (at_an_end or periods[split] not in (0, "0"))


def _may_evaluate(checker: ConfigChecker, task: Definition) -> bool:
    """Whether code of the user may evaluate, or give the task more loaders."""
    finder = checker.finder
    definitions = [task]
    for factory in checker.factories.values():
        if factory.kind in ("hook", "updater"):
            found = finder.find_definition(factory.dotted) if factory.file is not None else None
            if found is None:
                return True
            definitions.append(found)
    for definition in definitions:
        chain, complete = class_definitions(definition, finder)
        own = [item for item in chain if item.module.name.split(".")[0] != "epochal"]
        if not complete or any(
            "evaluate" in find_attribute_names(item.module, finder) for item in own
        ):
            return True
    return False


def _lacks_val(root: Node, task: Definition) -> bool:
    if root.get("train.folds").value is not None:  # each fold has its own validation data
        return False
    data = root.mapping.get("data")
    return task.dotted == _MODULE_TASK and data is not None and "val" not in data.mapping
