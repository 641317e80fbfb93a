"""Whether anything can produce the metric that a config monitors."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.check.classes import binds, class_definitions, method_of
from epochal.check.methods import find_method, is_assigned
from epochal.registry.nearest import nearest

if TYPE_CHECKING:
    from epochal.check.walk import Walk
    from epochal.config.node import Node
    from epochal.errors import Place
    from epochal.registry.library import Library
    from epochal.registry.source import Definition, FunctionNode

AVERAGED = "val_ema"
"""Stands for the split in names of metrics of ``val`` with averaged weights."""

_PRODUCERS = ("batch_metric", "extra_batch_metrics", "epoch_metric")


@final
@dataclass(frozen=True, slots=True)
class Producible:
    """The names that a task is known to produce, by split."""

    train: frozenset[str]
    evaluation: frozenset[str]
    complete: bool
    """False when more names may exist than the text shows."""


def check_monitor(walk: Walk, root: Node, task: Definition | None) -> None:
    """Report a monitor without a direction, or one that no metric can produce."""
    node = root.mapping.get("monitor")
    if node is None or node.value is None or walk.mistakes.is_known_bad("monitor"):
        return
    named = node.mapping.get("metric", node)
    if not isinstance(named.value, str) or walk.mistakes.is_known_bad("monitor.metric"):
        return
    key = "monitor" if named is node else "monitor.metric"
    text = named.value
    sign = text[:1] if text[:1] in ("+", "-") else ""
    metric = text[len(sign) :]
    mode = node.mapping["mode"].value if "mode" in node.mapping else None
    if not sign and mode is None:
        hint = f"write '+{text}' if larger is better, '-{text}' if smaller is"
        walk.mistakes.report(key, f"does not say which way is better: {text!r}", named.place, hint)
    elif sign and mode is not None and (sign == "+") != (mode == "max"):
        what = f"{mode!r} contradicts the sign of {text!r}"
        walk.mistakes.report(
            "monitor.mode", what, node.mapping["mode"].place, "leave out one of them"
        )
    elif task is not None:
        names = producible(task, root, walk.registry.library)
        if names is not None:
            _check_metric(walk, key, metric, sign, names, named.place)


def producible(task: Definition, root: Node, library: Library) -> Producible | None:
    """What a task and the ``metrics`` section can produce, as far as the text shows."""
    found = {name: _returned(task, name, library) for name in (*_PRODUCERS, "batch_loss")}
    section = _section_names(root)
    err = find_method(task, "post_metric_to_err", library)
    unknown = section is None or err is None or any(names is None for names in found.values())
    computed = {key for name in _PRODUCERS for key in found[name] or ()}
    losses = found["batch_loss"] or set()
    evaluated = computed | (section or set()) | ({"err"} if err else set())
    eval_loss = root.find("train.eval_loss")
    if eval_loss is not None and eval_loss.value is True:
        evaluated |= losses
    return Producible(frozenset(computed | losses), frozenset(evaluated), not unknown)


def _check_metric(
    walk: Walk, key: str, metric: str, sign: str, names: Producible, place: Place
) -> None:
    if not names.complete:
        return
    split, _, rest = metric.partition("/")
    known = [f"train/{name}" for name in names.train]
    known += [f"val/{name}" for name in names.evaluation]
    name = rest.rpartition("/")[2]
    is_train = split == "train" and name in names.train
    if is_train or (split in ("val", "test", AVERAGED) and name in names.evaluation):
        return
    close = nearest(metric, known) or nearest(f"val/{metric}", known)
    hint = f"return {name!r} from batch_metric of the task, or add it under metrics"
    if close or known:
        shown = ", ".join(sorted(known)[:12])
        hint = f"did you mean '{sign}{close}'?" if close else f"can be: {shown}"
    if split in ("val", AVERAGED) and name in names.train:
        hint = "set train.eval_loss=true to compute losses in evaluation"
    walk.mistakes.report(key, f"nothing produces the metric {metric!r}", place, hint)


def _section_names(root: Node) -> set[str] | None:
    metrics = root.mapping.get("metrics")
    names = set[str]()
    for entry in metrics.elements if metrics is not None else ():
        name = entry.mapping.get("name")
        if name is None or not isinstance(name.value, str):
            return None  # a metric without a name of its own may be called anything
        names.add(name.value)
    return names


def _returned(task: Definition, method: str, library: Library) -> set[str] | None:
    """The keys of the mappings that a method returns; nothing when they cannot be told."""
    key = ("returned", task.dotted, method)
    if key not in library.kept:
        library.kept[key] = _read_returned(task, method, library)
    found: set[str] | None = library.kept[key]
    return found


def _read_returned(task: Definition, method: str, library: Library) -> set[str] | None:
    chain, complete = class_definitions(task, library)
    for item in chain:
        function = method_of(item.node, method) if isinstance(item.node, ast.ClassDef) else None
        if function is not None:
            return None if is_assigned(chain, method) else _literal_keys(function)
        if isinstance(item.node, ast.ClassDef) and binds(item.node, method):
            return None  # assigned in the class body: whatever it returns
    return set() if complete and not is_assigned(chain, method) else None


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
    """The keys of a local mapping that is only made from literals and item assignments."""
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
