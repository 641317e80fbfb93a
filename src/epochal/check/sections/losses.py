"""Checks the terms of ``loss``, the inputs of losses and metrics, and the task's own loss."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from epochal.check.sections.methods import is_set_on_self
from epochal.check.sections.section_shapes import is_mapping_of_specs
from epochal.check.signatures.classes import binds_name, class_definitions, find_method_node
from epochal.check.signatures.signature import (
    called_signature,
    definition_signature,
    method_signature,
    read_signature,
)
from epochal.check.values.unknown_keys import suggest_known
from epochal.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.check.signatures.parameters import Signature
    from epochal.check.values.checker import ConfigChecker
    from epochal.config.node import Node
    from epochal.registry.parsed_module import Definition

TOTAL_LOSS = "loss"
"""The name of the weighted sum."""

_SOURCES = ("out", "batch")
_STAGE_ARGUMENTS = {
    "outputs": ("samples", "out", "batch", "run"),
    "evaluation": ("samples", "metrics", "run", "split"),
}
_COLLECT = "epochal.components.outputs.Collect"


def iter_loss_terms(root: Node) -> Iterator[tuple[str, str, Node]]:
    """The path, the name and the spec of every term."""
    node = root.get("loss")
    if node.value is None:
        return
    if node.is_list:
        for index, term in enumerate(node.elements):
            yield f"loss.{index}", _own_name(term) or _type_name(term), term
    elif is_mapping_of_specs(node):
        for name, term in node.mapping.items():
            yield f"loss.{name}", name, term
    else:
        yield "loss", _own_name(node) or TOTAL_LOSS, node


def loss_term_names(root: Node) -> set[str]:
    """The names of all terms and of their sum."""
    names = {name for _, name, _ in iter_loss_terms(root)}
    return names | {TOTAL_LOSS} if names else set()


def check_loss_section(checker: ConfigChecker, root: Node) -> None:
    """Report wrong names, weights and inputs of the terms."""
    known: set[str] = set()
    section = root.get("loss")
    if section.is_list and not section.elements:
        checker.report("loss", "has no terms", section.place, "write loss: [{type: mse}]")
    _check_weights(checker, root)
    for path, name, term in iter_loss_terms(root):
        is_single = path == "loss" and section.is_mapping
        _check_name(checker, path, name, term, known, may_be_total=is_single)
        known.add(name)
        _check_reduction(checker, path, term)
        if term.get("inputs").is_mapping:
            _check_inputs(checker, path, term.get("inputs"), _called(checker, path))


def check_metric_inputs(checker: ConfigChecker, root: Node) -> None:
    """Report wrong inputs of the metrics."""
    for index, entry in enumerate(root.get("metrics").elements):
        path, inputs = f"metrics.{index}", entry.get("inputs")
        if inputs.is_mapping:
            _check_inputs(checker, path, inputs, _updated(checker, path))


def check_output_stages(checker: ConfigChecker, root: Node) -> None:
    """Report functions with unknown arguments, and columns that are not paths."""
    for section, available in _STAGE_ARGUMENTS.items():
        for index, entry in enumerate(root.get(section).elements):
            definition = checker.find_definition(f"{section}.{index}")
            if definition is None or isinstance(definition.node, ast.ClassDef):
                continue
            for item in definition_signature(definition, checker.finder).parameters:
                is_given = item.name in {*available, *entry.mapping}
                if item.is_required and not is_given and item.kind in ("keyword", "positional"):
                    what = f"{definition.dotted} takes {item.name!r}"
                    hint = f"a stage gets any of {', '.join(available)}"
                    place = entry.get("type").place
                    checker.report(f"{section}.{index}", what, place, hint)
    for index, entry in enumerate(root.get("outputs").elements):
        factory = checker.factories.get(f"outputs.{index}")
        if factory is None or factory.dotted != _COLLECT:
            continue
        for name, node in entry.get("columns").mapping.items():
            if isinstance(node.value, str) and not _is_route(node.value):
                what = f"must be out, batch, or a path into one of them, got {node.value!r}"
                here = f"outputs.{index}.columns.{name}"
                checker.report(here, what, node.place, _route_hint(name, node.value))


def _check_weights(checker: ConfigChecker, root: Node) -> None:
    """Report terms that all have weight 0, unless a stage may change that."""
    weights = [term.get("weight") for _, _, term in iter_loss_terms(root)]
    zeros = [node for node in weights if node.value == 0]
    if zeros and len(zeros) == len(weights) and "stages" not in root.mapping:
        what = "every term has the weight 0, so nothing is trained"
        hint = "give at least one of them another weight"
        checker.report("loss", what, zeros[0].place, hint)


def _check_name(
    checker: ConfigChecker, path: str, name: str, term: Node, known: set[str], *, may_be_total: bool
) -> None:
    written = term.get("name")
    is_written = written.value is not None
    place = written.place if is_written else term.mapping.get("type", term).place
    if name in known:
        hint = "give one of them another `name:`"
        checker.report(path, f"two terms are called {name!r}", place, hint)
    elif name == TOTAL_LOSS and not may_be_total:
        what = f"{TOTAL_LOSS!r} is the name of the sum of all terms"
        checker.report(path, what, place, "give the term another name")
    elif not name.isidentifier():
        what = f"a term cannot be called {name!r}"
        checker.report(path, what, place, "use letters, digits and underscores")
    elif is_written and path == f"loss.{name}" and _own_name(term) != name:
        what = f"the key already names the term {name!r}"
        checker.report(f"{path}.name", what, place, "leave out the name")


def _check_reduction(checker: ConfigChecker, path: str, term: Node) -> None:
    """Report a term that is not a mean: microbatches of one step could not be weighted."""
    factory, node = checker.factories.get(path), term.get("reduction")
    if factory is None or not factory.dotted.startswith("torch."):
        return
    if node.value in ("sum", "none"):
        what = f"a term must be a mean over its items, got {node.value!r}"
        checker.report(f"{path}.reduction", what, node.place, "leave it out")


def _called(checker: ConfigChecker, path: str) -> Signature | None:
    factory = checker.factories.get(path)
    if factory is None:
        return None
    return called_signature(read_signature(factory, checker.finder), checker.finder)


def _updated(checker: ConfigChecker, path: str) -> Signature | None:
    """The parameters of a metric's ``update``, or of the function that is the metric."""
    definition = checker.find_definition(path)
    if definition is None or not isinstance(definition.node, ast.ClassDef):
        return _called(checker, path)
    return method_signature(definition, "update", checker.finder)


def _check_inputs(
    checker: ConfigChecker, path: str, inputs: Node, called: Signature | None
) -> None:
    for argument, node in inputs.mapping.items():
        here = f"{path}.inputs.{argument}"
        if isinstance(node.value, str) and not _is_route(node.value):
            what = f"must be out, batch, or a path into one of them, got {node.value!r}"
            checker.report(here, what, node.place, _route_hint(argument, node.value))
        if called is not None and not called.open and called.get(argument) is None:
            known = [item.name for item in called.parameters if item.kind != "variadic"]
            what = f"{called.owner} takes no {argument!r}"
            checker.report(here, what, node.key_place, suggest_known(argument, known))
    if called is None or checker.has_any(f"{path}.inputs"):
        return
    for item in called.parameters:
        is_open = item.is_required and item.kind in ("keyword", "positional")
        if is_open and item.name not in {*inputs.mapping, *_SOURCES}:
            what = f"missing; {called.owner} requires it"
            hint = f"add {item.name}: {_example(item.name)}"
            checker.report(f"{path}.inputs.{item.name}", what, inputs.key_place, hint)


def check_batch_loss_conflict(checker: ConfigChecker, root: Node, task: Definition) -> None:
    """Report a section ``loss`` beside a ``batch_loss`` that does not take it."""
    node = root.get("loss")
    if node.value is None:
        return
    chain, _ = class_definitions(task, checker.finder)
    owner = next((item for item in chain if binds_name(item.node, "batch_loss")), None)
    method = None if owner is None else find_method_node(owner.node, "batch_loss")
    if (
        owner is None
        or method is None
        or method.decorator_list
        or is_set_on_self(chain, "batch_loss")
    ):
        return
    if len(method.args.args) + len(method.args.kwonlyargs) < 4:  # with self and loss_fn
        what = f"{owner.dotted} already computes the loss in batch_loss"
        hint = "remove one of them, or write def batch_loss(self, out, batch, loss_fn)"
        checker.report("loss", what, node.key_place, hint)


def _is_route(text: str) -> bool:
    source, *names = text.split(".")
    return source in _SOURCES and all(names)


def _route_hint(argument: str, text: str) -> str:
    source, _, rest = text.partition(".")
    close = nearest(source, _SOURCES)
    if close and rest:
        return f"did you mean {f'{close}.{rest}'!r}?"
    name = text if text.isidentifier() else argument
    return f"write out.{name} or batch.{name}"


def _example(argument: str) -> str:
    return f"batch.{argument}" if argument in ("target", "label") else f"out.{argument}"


def _own_name(term: Node) -> str:
    name = term.get("name").value
    return name if isinstance(name, str) else ""


def _type_name(term: Node) -> str:
    node = term.mapping.get("type", term)
    return node.value.rpartition(".")[2] if isinstance(node.value, str) else ""
