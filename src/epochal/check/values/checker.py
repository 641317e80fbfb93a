"""Checks the entries of a config against signatures, and fills in their defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from epochal.check.signatures.parameters import Opaque, Parameter, Signature
from epochal.check.signatures.signature import read_signature
from epochal.check.values.object_types import find_misfits, spec_hint
from epochal.check.values.types import (
    describe_type,
    find_problem_place,
    find_type_problem,
    hint_for,
    is_callable_path,
    is_spec,
    nested_kind,
    parse_type,
)
from epochal.config.node import NOWHERE, Node, from_plain
from epochal.config.scalar import show
from epochal.config.source_file import display_name
from epochal.errors import ConfigError, Place, Problem, nearest, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from epochal.check.signatures.parameters import Plain
    from epochal.registry import Factory, Registry
    from epochal.registry.module_finder import ModuleFinder
    from epochal.registry.parsed_module import Definition

_NO_KEYS = Signature("")
_FEW = 3  # names that a hint can list

BASE = "$BASE"
# What other frameworks call our sections, and the length and the folder of a run.
_SECTIONS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("$base", "$bases", "base", "bases", "_base_", "defaults"), BASE),
        **dict.fromkeys(("optimizer", "optimizers", "optim_wrapper"), "optim"),
        **dict.fromkeys(("scheduler", "lr_scheduler", "param_scheduler"), "schedule"),
        **dict.fromkeys(("trainer", "training", "train_cfg"), "train"),
        **dict.fromkeys(("dataset", "datasets", "dataloader", "dataloaders", "datamodule"), "data"),
        **dict.fromkeys(("callbacks", "callback", "plugins", "custom_hooks"), "hooks"),
        **dict.fromkeys(("logger", "loggers", "logging"), "log"),
        **dict.fromkeys(("load_from", "pretrained"), "init_from"),
        **dict.fromkeys(("net", "network"), "model"),
        **dict.fromkeys(("ema", "swa", "ema_decay"), "average"),
        **dict.fromkeys(("seed_everything", "random_seed", "manual_seed"), "seed"),
        **dict.fromkeys(("distributed", "ddp", "fsdp", "accelerate"), "engine.strategy"),
    }
)
_ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("learning_rate", "base_lr", "max_lr"), "lr"),
        **dict.fromkeys(("wd", "l2", "l2_reg"), "weight_decay"),
        **dict.fromkeys(("max_grad_norm", "grad_clip", "gradient_clip_val", "clip_grad"), "clip"),
        **dict.fromkeys(
            ("accumulate_grad_batches", "gradient_accumulation_steps", "grad_accum"), "accumulate"
        ),
        **dict.fromkeys(("bs", "batchsize", "train_batch_size"), "batch_size"),
        "num_workers": "workers",
        "warmup_ratio": "warmup",
    }
)
_DEVICES = ("device", "devices", "gpu", "gpus", "gpu_ids", "cuda", "accelerator")
_EPOCHS = ("epochs", "max_epochs", "num_epochs", "n_epochs", "num_train_epochs")
_STEPS = ("steps", "max_steps", "num_steps", "iterations", "max_iters", "num_iters", "total_steps")
_WANDB_KEYS = ("parameters", "method", "early_terminate", "run_cap")
_OPTIM_ARGUMENTS = ("lr", "weight_decay", "clip", "accumulate")
_TRACKERS = {"wandb": "WandB", "mlflow": "MLflow", "tensorboard": "TensorBoard"}
_FOLDERS = ("work_dir", "log_dir", "output_dir", "save_dir", "default_root_dir")


@final
@dataclass(frozen=True, slots=True)
class Default:
    """A value that the config does not set."""

    key: str
    value: Plain | Opaque
    """``Opaque`` if it is known only after running the owner's code; then it is not filled in."""

    owner: str
    """The component or section whose default it is."""


@final
@dataclass(slots=True)
class ConfigChecker:
    """Checks parts of one config; collects mistakes, defaults and factories."""

    registry: Registry
    broken: frozenset[str] = frozenset()
    """Dotted prefixes whose included file could not be read."""

    reported: frozenset[str] = frozenset()
    """Keys with a mistake that loading the config reported."""

    problems: list[Problem] = field(default_factory=list)
    defaults: list[Default] = field(default_factory=list)
    factories: dict[str, Factory] = field(default_factory=dict)
    """The factory of each spec that could be resolved, by path."""

    @property
    def finder(self) -> ModuleFinder:
        """Finds the source of components."""
        return self.registry.finder

    def report(self, key: str, what: str, place: Place | None, hint: str = "") -> None:
        """Add one mistake."""
        self.problems.append(Problem(key, what, None if place == NOWHERE else place, hint))

    def is_broken(self, path: str) -> bool:
        """Whether a file that could not be read may contain what is missing at ``path``."""
        return any(not b or path == b or path.startswith(f"{b}.") for b in self.broken)

    def is_known_bad(self, path: str) -> bool:
        """Whether the value at ``path`` itself was reported earlier."""
        return path in self.reported or path in self.broken

    def has_any(self, path: str) -> bool:
        """Whether anything at or below ``path`` has been reported."""
        keys = (*self.reported, *(problem.key for problem in self.problems))
        return any(key == path or key.startswith(f"{path}.") for key in keys)

    def find_definition(self, path: str) -> Definition | None:
        """The source of the component at ``path``; None if it could not be read."""
        factory = self.factories.get(path)
        if factory is None or factory.file is None:
            return None
        return self.finder.find_definition(factory.dotted)

    def spec(self, path: str, node: Node, kind: str, own: Signature = _NO_KEYS) -> Node:
        """A component's spec, expanded; a bare name is a spec without arguments."""
        if self.is_known_bad(path) and not node.is_mapping:
            return node
        if isinstance(node.value, str):
            entry = Node(node.value, node.place, node.key_place, node.layer)
            node = Node(MappingProxyType({"type": entry}), node.place, node.key_place, node.layer)
        if not node.is_mapping:
            what = f"expected a mapping with a type, got {show(node.to_plain())}"
            self.report(path, what, node.place, "write {type: package.module.Class}")
            return node
        factory = self._factory(path, node, kind)
        if factory is None:  # keys of the section can still be checked
            owned = {key: item for key in node.mapping if (item := own.get(key)) is not None}
            for key, item in owned.items():
                self.value(f"{path}.{key}", node.mapping[key], item, own.owner)
            return node
        self.factories[path] = factory
        signature = read_signature(factory, self.finder)
        self._check_owners(path, node, own, signature)
        return self.entries(path, node, (own, signature), _default_place(factory))

    def _check_owners(self, path: str, node: Node, own: Signature, signature: Signature) -> None:
        """Report required arguments that a key of the section hides."""
        for item in signature.parameters:
            if item.is_required and own.get(item.name) is not None:
                what = f"{signature.owner} requires it, but it is a key of {own.owner}"
                hint = "give the argument another name or a default"
                self.report(f"{path}.{item.name}", what, _best_place(node), hint)

    def _factory(self, path: str, node: Node, kind: str) -> Factory | None:
        name = node.mapping.get("type")
        key = f"{path}.type"
        if name is None:
            if not self.is_broken(key):
                names = self.registry.names(kind)
                is_short = 0 < len(names) <= _FEW
                hint = f"add type: {' or '.join(names) if is_short else 'package.module.Class'}"
                self.report(path, f"the {kind} has no type", _best_place(node), hint)
            return None
        if self.is_known_bad(key):
            return None
        if not isinstance(name.value, str):
            what = f"expected the name of a {kind}, got {show(name.to_plain())}"
            self.report(key, what, name.place)
            return None
        return self._find(kind, name.value, name.place, key)

    def _find(self, kind: str, name: str, place: Place, key: str) -> Factory | None:
        try:
            return self.registry.find(kind, name, place, key=key)
        except ConfigError as error:
            self.problems.extend(error.problems)
            return None

    def entries(
        self, path: str, node: Node, signatures: tuple[Signature, ...], origin: Place
    ) -> Node:
        """The checked entries of a mapping, with the defaults of the signatures."""
        entries: dict[str, Node] = {}
        excused = set[str]()
        for key, child in node.mapping.items():
            here = f"{path}.{key}"
            found = _find(key, signatures)
            if key == "type" and len(signatures) > 1:
                entries[key] = child
            elif found is not None:
                entries[key] = self.value(here, child, *found)
            elif any(signature.open for signature in signatures):
                entries[key] = self.nested(here, child)
            else:
                excused.add(self._unknown(here, key, child, signatures))
        self._missing(path, node, signatures, entries.keys() | excused)
        self._fill(path, entries, signatures, origin)
        self._check_positions(path, entries, signatures[-1])
        return node.with_entries(entries)

    def _unknown(self, path: str, key: str, child: Node, signatures: tuple[Signature, ...]) -> str:
        """Report an unknown key; returns the known key that was probably meant."""
        known = [item.name for signature in signatures for item in signature.parameters]
        meant = meant_argument(key)
        close = meant if meant in known else nearest(key, known)
        owner = signatures[-1].owner
        word = "argument" if len(signatures) > 1 else "key"
        hint = f"did you mean {meant!r}?" if close == meant else suggest_known(key, known)
        if path == f"train.{key}":
            hint = length_hint(key, child) or hint
        if "warmup" in known:
            hint = _warmup_hint(key, child) or hint
        if path.startswith("hooks.") and key in ("monitor", "mode"):
            hint = "the whole run has one monitor: write monitor: -val/loss outside of hooks"
        self.report(path, f"unknown {word} {key!r} of {owner}", child.key_place, hint)
        return close or ""

    def _missing(
        self, path: str, node: Node, signatures: tuple[Signature, ...], given: Iterable[str]
    ) -> None:
        have = set(given)
        for signature in signatures:
            for item in () if signature.is_partial else signature.parameters:
                here = f"{path}.{item.name}"
                if item.is_required and item.name not in have and not self.is_broken(here):
                    have.add(item.name)
                    what = f"missing; {signature.owner} requires it"
                    kind = describe_type(parse_type(item.annotation))
                    example = "..." if kind == "a value" else f"<{kind}>"
                    self.report(here, what, _best_place(node), f"add {item.name}: {example}")

    def _fill(
        self,
        path: str,
        entries: dict[str, Node],
        signatures: tuple[Signature, ...],
        origin: Place,
    ) -> None:
        for signature in signatures:
            for item in () if signature.is_partial else signature.parameters:
                if (
                    item.is_required
                    or item.kind == "variadic"
                    or item.name in entries
                    or f"{path}.{item.name}" in self.reported
                ):
                    continue
                self.defaults.append(Default(f"{path}.{item.name}", item.default, signature.owner))
                if not isinstance(item.default, Opaque):
                    entries[item.name] = from_plain(item.default, place=origin, layer="default")

    def _check_positions(self, path: str, entries: dict[str, Node], signature: Signature) -> None:
        """Report unknown values of parameters that come before ``*layers``."""
        variadic = signature.variadic
        given = entries.get(variadic.name) if variadic is not None else None
        if variadic is None or given is None or not given.elements:
            return
        for item in signature.before_variadic():
            if item.name not in entries and not item.is_required:
                what = f"missing; it comes before *{variadic.argument} of {signature.owner}"
                here = f"{path}.{item.name}"
                self.report(here, what, given.key_place, f"add {item.name}: ...")

    def value(self, path: str, node: Node, parameter: Parameter, owner: str) -> Node:
        """One value, checked against its parameter and expanded."""
        if self.is_known_bad(path) or (node.value is None and parameter.default is None):
            return node
        wrong = find_type_problem(node, parameter.annotation)
        if wrong is None and is_callable_path(node, parameter.annotation):
            self._find(nested_kind(path), str(node.value), node.place, path)
        if wrong is None:
            self._check_instances(path, node, parameter, owner)
            return self.nested(path, node)
        what, _, accepted = wrong.partition("; ")
        hint = accepted or hint_for(node, parameter.annotation, parameter.default)
        if owner and not owner.startswith("section"):
            what = f"{what} (argument {parameter.name!r} of {owner})"
        place = find_problem_place(node, parameter.annotation)
        self.report(path, what, place, hint)
        return node

    def _check_instances(self, path: str, node: Node, parameter: Parameter, owner: str) -> None:
        """Report plain values where the signature requires an object."""
        for below, value, wanted in find_misfits(node, parameter, self.finder):
            got = "a mapping without type" if value.is_mapping else show(value.value)
            what = f"expected an object of {wanted}, got {got}"
            what = f"{what} (argument {parameter.name!r} of {owner})"
            hint = spec_hint(value, wanted, self.finder)
            self.report(f"{path}{below}", what, value.place, hint)

    def nested(self, path: str, node: Node) -> Node:
        """A value with every spec inside it checked and expanded."""
        if is_spec(node):
            return self.spec(path, node, nested_kind(path))
        return node.map_children(lambda key, child: self.nested(f"{path}.{key}", child))


def _find(key: str, signatures: tuple[Signature, ...]) -> tuple[Parameter, str] | None:
    for signature in signatures:
        parameter = signature.get(key)
        if parameter is not None:
            return parameter, signature.owner
    return None


def _best_place(node: Node) -> Place:
    name = node.mapping.get("type")
    if name is not None:
        return name.place
    return node.key_place if node.key_place != NOWHERE else node.place


def _default_place(factory: Factory) -> Place:
    if factory.file is None:
        return Place(factory.dotted)
    return Place(display_name(factory.file), factory.line, 1)


def suggest_known(name: str, known: Iterable[str]) -> str:
    """A hint with the nearest known name, or else some of them."""
    names = sorted(set(known))
    if not names:
        return "it takes none"
    return suggest(name, names) or f"known: {', '.join(names[:12])}, ..."


def meant_section(name: str) -> str:
    """The section that other frameworks call ``name``; empty if there is none."""
    return _SECTIONS.get(name.lower(), "")


def meant_argument(name: str) -> str:
    """The argument or key that other frameworks call ``name``; empty if there is none."""
    return _ARGUMENTS.get(name.lower(), "")


def section_hint(name: str, node: Node) -> str:
    """What to write for a top-level key that belongs into a section; else empty."""
    length = length_hint(name, node)
    if length:
        return f"write train: {{{length.removeprefix('write ')}}}"
    if name in _WANDB_KEYS:
        return "a key of a W&B sweep file: write it under 'sweep' of an experiment's config"
    if name.lower() in _FOLDERS:
        return f"write record: {{log_dir: {node.value}}}"
    if name.lower() in _DEVICES:
        return "choose it for each run: --device cuda:0, or device='cuda:0' in Python"
    if name.lower() in _TRACKERS:
        return f"a hook: add {{type: {_TRACKERS[name.lower()]}}} to hooks"
    argument = "lr" if name == "lr" else meant_argument(name)
    return f"write optim: {{{argument}: ...}}" if argument in _OPTIM_ARGUMENTS else ""


def length_hint(key: str, node: Node) -> str:
    """How to write the length of a training, for keys such as ``epochs``; else empty."""
    unit = "ep" if key.lower() in _EPOCHS else "st" if key.lower() in _STEPS else ""
    return f"write for: {_amount(node)}{unit}" if unit else ""


def _warmup_hint(key: str, node: Node) -> str:
    """How to write the length of a warm-up, for keys such as ``warmup_steps``; else empty."""
    unit = {"warmup_steps": "st", "warmup_iters": "st", "warmup_epochs": "ep"}.get(
        key.lower().removeprefix("num_").removeprefix("lr_")
    )
    return f"write warmup: {_amount(node)}{unit}" if unit else ""


def _amount(node: Node) -> object:
    """The number of a key such as ``epochs``, or an example if it has none."""
    return node.value if isinstance(node.value, int | float) else 10
