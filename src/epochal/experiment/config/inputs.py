"""The inputs of an experiment, and the result of checking them; all parts are built from these."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

from torch import nn
from torch.utils.data import DataLoader, Dataset

from epochal.check import SECTIONS, build_registry
from epochal.check.sections.experiment_class import find_built_sections
from epochal.config import Config, Duration, from_plain, load
from epochal.engine import Runner, Train
from epochal.engine.interfaces.every import Every
from epochal.errors import ConfigError, Place, Problem, suggest
from epochal.experiment.config.check_file import CheckedConfig, check_config, drop_sections
from epochal.experiment.config.choices import (
    Choices,
    check_choices,
    check_overrides,
    to_override,
    to_overrides,
)
from epochal.experiment.config.script_arguments import Args, ScriptOptions, Value, find_args_origin

if TYPE_CHECKING:
    from epochal.check import CheckReport
    from epochal.config import Node
    from epochal.experiment.config.experiment_class import ExperimentClass
    from epochal.registry import Project, Registry

OBJECT_SECTIONS = (
    "task",
    "model",
    "data",
    "optim",
    "schedule",
    "updater",
    "average",
    "loss",
    "metrics",
    "outputs",
    "evaluation",
    "hooks",
    "runner",
)
OPTIMIZER_HINT = "add optim: {type: AdamW, lr: 1e-3}"
_ORDERED = ("outputs", "evaluation")
_LISTS = ("hooks", "metrics", *_ORDERED)


@final
@dataclass(frozen=True)
class GivenParts:
    """What Python gives: ready objects, and build steps that a subclass overrides."""

    parts: Mapping[str, Any] = field(default_factory=dict)
    """By section: task, model, data, optim, schedule, updater, average, loss, runner."""

    hooks: tuple[Any, ...] = ()
    metrics: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] = ()
    evaluation: tuple[Any, ...] = ()
    overridden: frozenset[str] = frozenset()
    """The ``build_*`` and ``prepare_*`` methods that the experiment's class overrides."""

    caches: Mapping[str, Any] = field(default_factory=dict)
    """Values that go into every checkpoint."""

    @property
    def sections(self) -> list[str]:
        """The sections that Python gives as objects."""
        return sorted({*self.parts, *(name for name, objects in self.lists.items() if objects)})

    @property
    def lists(self) -> dict[str, tuple[Any, ...]]:
        """The objects that are added to the lists of the config."""
        return {name: getattr(self, name) for name in _LISTS}


@final
@dataclass(frozen=True)
class ExperimentInputs:
    """What an experiment was given, and the config that was made of it."""

    source: object
    overrides: tuple[str, ...]
    """As typed, without those that come from the choices."""

    choices: Choices
    given: GivenParts
    config: Config
    is_test: bool = False
    own: ScriptOptions = field(default_factory=ScriptOptions)
    """The script's own options."""

    replaced: Mapping[str, Any] = field(default_factory=dict)
    """Values of sections that are left out, because their parts are given."""

    added: Mapping[str, list[Any]] = field(default_factory=dict)
    """Specs of hooks, metrics and stages that Python adds to those of the config."""

    checked: CheckedConfig | None = None
    """The config as ``check_file`` has checked it, if it did and Python gives nothing."""

    kind: ExperimentClass | None = None
    """The subclass of ``Experiment``, if it is one; recorded as the config's ``experiment``."""

    @property
    def user_dir(self) -> Path | None:
        """The folder of the user's code, if it was chosen."""
        folder = self.choices.get("user_dir")
        return None if folder is None else Path(folder)

    @property
    def project(self) -> Project | None:
        """The project of a frozen job; None: it is found as usual."""
        frozen = self.choices.get("frozen")
        return None if frozen is None else frozen.project

    def with_weights(self, init_from: object) -> ExperimentInputs:
        """The same inputs with another ``init_from``, and nothing to resume."""
        changes = [one for one in self.overrides if not one.startswith(("init_from", "ckp_file"))]
        added = (*changes, to_override("init_from", init_from))
        choices: Choices = {"resume": None, "resume_from": None}
        return replace(self, overrides=added).with_choices(choices)

    def count_merged(self) -> Iterator[tuple[str, int, int]]:
        """Lists that both the config and Python give: their name, and how many of each."""
        for name, objects in self.given.lists.items():
            specs = len(self.added.get(name, ()))
            of_config = len(self.config.root.get(name).elements) - specs
            if of_config > 0 and specs + len(objects) and self.source is not None:
                yield name, of_config, specs + len(objects)

    def with_given(self, given: GivenParts) -> ExperimentInputs:
        """The same inputs with other objects."""
        return replace(self, given=given, checked=None)

    def with_choices(self, choices: Choices) -> ExperimentInputs:
        """The same inputs with other choices for the run; loads the config again."""
        merged = self.choices | choices
        config = _load(self.source, self.overrides, merged, self.own, self.added)
        return replace(self, choices=merged, config=config, checked=None)


def load_inputs(
    source: object,
    overrides: Sequence[str],
    choices: Choices,
    sections: Mapping[str, Any],
    *,
    is_test: bool = False,
) -> ExperimentInputs:
    """The config, the choices and the objects that an experiment was given.

    What ``check_file``, ``parse_args`` or this function has loaded already is not loaded again.

    Raises:
        ConfigError: A section that takes only values got an object, or the file cannot be read.
    """
    check_choices(choices)
    check_overrides(overrides)
    _refuse_choices(sections)
    typed, own = list(overrides), ScriptOptions()
    config: Config | None = None
    checked: CheckedConfig | None = None
    if isinstance(source, CheckedConfig):
        assert not sections
        checked, config, source = source, source.config, source.config.path
    elif isinstance(source, ExperimentInputs):
        if not (overrides or choices or sections):
            return source
        own, is_test = source.own, is_test or source.is_test
        choices, typed = source.choices | choices, [*source.overrides, *typed]
        source = source.source
    elif isinstance(source, Args) and (origin := find_args_origin(source)) is not None:
        origin = origin.with_changes_from(source)
        if not (overrides or choices or sections):
            config = origin.config
        own, is_test = origin.own, is_test or origin.is_test
        source, typed = origin.path, [*origin.overrides, *typed]
        choices = origin.choices | choices
    elif isinstance(source, Args):
        source = source.to_plain()
    values, given = _split_sections(sections)
    added: dict[str, list[Any]] = {}
    if source is None:
        source = values
    else:
        added = {name: values.pop(name) for name in _LISTS if name in values}
        typed += [to_override(key, value) for key, value in _flatten(values)]
    config = config or _load(source, typed, choices, own, added)
    named = config.root.get("ckp_file").value
    if named is not None:
        checked = None
        if choices.get("resume") is None:  # what was typed wins
            choices = choices | {"resume": str(named)}
    return ExperimentInputs(
        source,
        tuple(typed),
        choices,
        given,
        config,
        is_test,
        own,
        added=added,
        checked=checked,
    )


def _load(
    source: object,
    overrides: Sequence[str],
    choices: Choices,
    own: ScriptOptions,
    added: Mapping[str, list[Any]],
) -> Config:
    config = load(
        source,
        variant=choices.get("variant"),
        overrides=to_overrides(choices, overrides),
        trial=_get_trial_values(choices),
        allow_python=choices.get("allow_python", False),
    )
    config = own.fill(config)
    entries = dict(config.root.mapping)
    for name, specs in added.items():
        more = from_plain(specs, place=Place("a Python list"), layer="command line")
        below = entries.get(name, replace(more, value=()))
        if below.value is None or below.is_list:  # else the check reports it
            entries[name] = replace(below, value=(*below.elements, *more.elements))
    return replace(config, root=config.root.with_entries(entries))


def _get_trial_values(choices: Choices) -> Mapping[str, object]:
    trial = choices.get("trial")
    return {} if trial is None else trial["values"]


def _refuse_choices(sections: Mapping[str, Any]) -> None:
    """Say where ``no_file=True`` and the like belong; ``ep.run`` takes them as keywords."""
    for name, value in sections.items():
        if name in Choices.__annotations__ and name not in SECTIONS:
            what = "is a choice for a run, not a section of the config"
            raise _refusal(name, what, f"write choices={{{name!r}: {value!r}}}")


def _split_sections(sections: Mapping[str, Any]) -> tuple[dict[str, Any], GivenParts]:
    values: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    lists: dict[str, Any] = {}
    for name, section in sections.items():
        if name in _LISTS:
            entries = list(section or ())
            values[name] = [_to_plain(entry) for entry in entries if _is_plain(entry)]
            lists[name] = tuple(entry for entry in entries if not _is_plain(entry))
            for entry in lists[name]:
                check_given_part(name, entry)
            is_plain = [_is_plain(entry) for entry in entries]
            if name in _ORDERED and is_plain != sorted(is_plain, reverse=True):
                what = "a spec follows an object, but stages run in order"
                raise _refusal(name, what, "write specs first, or build all stages as objects")
        elif _is_plain(section):
            values[name] = _to_plain(section)
        else:
            if name not in OBJECT_SECTIONS:
                values_only = "give numbers, texts, lists and mappings"
                hint = values_only if name in SECTIONS else suggest(name, SECTIONS)
                kind = type(section).__name__
                raise _refusal(name, f"cannot be given as an object of type {kind!r}", hint)
            check_given_part(name, section)
            parts[name] = section
    return values, GivenParts(parts, **lists)


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values; a spec with a ``type`` replaces what it is put over."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and "type" not in value:
            yield from _flatten(value, f"{path}.")
        else:
            yield path, value


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(child) for key, child in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(child) for child in value)
    return value is None or isinstance(value, bool | int | float | str | Path | Duration | Every)


def _to_plain(value: Value) -> Value:
    if isinstance(value, Mapping):
        return {key: _to_plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(child) for child in value]
    return str(value) if isinstance(value, Path | Duration | Every) else value


_EXAMPLES = {
    "optim": "optim={name}(model.parameters(), lr=1e-3), or optim={{'type': {name!r}, 'lr': 1e-3}}",
    "schedule": "schedule={name}(optimizer, ...), or schedule={{'type': {name!r}, ...}}",
    "data": "data={{'train': DataLoader({name}(...), batch_size=32)}}",
    "hooks": "hooks=[{name}()]",
    **{name: name + "=[{name}()]" for name in ("metrics", "outputs", "evaluation")},
}
_SEVERAL_OPTIMIZERS = (
    "give one of torch.optim, or describe several by name: "
    "optim={'a': {'type': 'Adam', 'match': 'a', 'loss': 'a_loss'}, 'b': {...}}"
)
Part = Any  # an object of any type


def check_given_part(section: str, part: Part, *, source: str = "") -> None:
    """Refuse an object that cannot be the part of ``section``.

    ``source`` is the method that made it, if one did.
    """
    where = source or section
    if inspect.isclass(part):
        hint = _EXAMPLES.get(section, section + "={name}(...)").format(name=part.__name__)
        if source:
            hint = f"return {part.__name__}(...)"
        raise _refusal(where, f"is the class {part.__name__!r}, not an object of it", hint)
    if part is None:
        raise _refusal(where, "gave nothing", f"end it with: return {section}")
    if section == "model" and not isinstance(part, nn.Module):
        what = f"is not a torch.nn.Module, but an object of type {type(part).__name__!r}"
        raise _refusal(where, what, "give an object of a class that extends torch.nn.Module")
    if section == "optim" and not hasattr(part, "param_groups"):
        what = f"is no optimizer, but an object of type {type(part).__name__!r}"
        raise _refusal(where, what, _SEVERAL_OPTIMIZERS)
    if section == "loss" and not callable(part):
        what = f"cannot be called: it is an object of type {type(part).__name__!r}"
        raise _refusal(where, what, "give a function or a module, such as nn.CrossEntropyLoss()")
    if section == "data":
        _check_data(part)


def _check_data(data: Part) -> None:
    if not isinstance(data, Mapping):
        name = "loader" if isinstance(data, DataLoader) else "DataLoader(dataset, batch_size=32)"
        what = f"is not a mapping of splits to loaders, but a {type(data).__name__!r}"
        raise _refusal("data", what, f"write data={{'train': {name}}}")
    for split, loader in data.items():
        for one in loader.values() if isinstance(loader, Mapping) else (loader,):
            if isinstance(one, Dataset) or inspect.isclass(one):
                kind = one.__name__ if inspect.isclass(one) else type(one).__name__
                what = f"is the dataset {kind!r}, not a loader of batches"
                hint = f"write data={{{split!r}: DataLoader(dataset, batch_size=32)}}"
                raise _refusal(f"data.{split}", what, hint)


def _refusal(where: str, what: str, hint: str) -> ConfigError:
    return ConfigError(Problem(where, what, hint=hint))


@final
@dataclass(frozen=True)
class CheckedInputs:
    """What an experiment was given, and the result of checking it."""

    inputs: ExperimentInputs
    """Without the sections that Python gives instead."""

    report: CheckReport
    registry: Registry
    runner: str | None = None
    """The runner that was asked for instead of the config's."""

    def expand(self, config: Config, project_dir: Path | None) -> Node:
        """Another config of the same experiment, such as a recorded one, with all defaults."""
        choices = self.inputs.choices | {"user_dir": self.inputs.user_dir or project_dir}
        other = replace(self.inputs, config=config, choices=choices, checked=None, kind=None)
        return check_inputs(other, self.runner).report.expanded


def check_inputs(inputs: ExperimentInputs, runner: str | None) -> CheckedInputs:
    """The inputs with every mistake of the config, for the runner that it or ``runner`` names.

    A config that ``check_file`` has checked for the same runner is not checked again.
    """
    chosen = runner or ("test" if inputs.is_test else None)
    checked = inputs.checked
    if checked is None or chosen is not None:
        inputs = _name_class(_drop_replaced(inputs, runner=chosen))
        checked = _check(inputs, chosen)
    inputs = replace(inputs, config=checked.config)
    return CheckedInputs(inputs, checked.report, checked.registry, runner)


def _drop_replaced(inputs: ExperimentInputs, *, runner: str | None = None) -> ExperimentInputs:
    """The inputs without the sections whose parts are given.

    A given runner trains: it is left out where ``runner`` asks for something else.
    """
    parts = dict(inputs.given.parts)
    if runner is not None and runner != "train":
        parts.pop("runner", None)
    gone = {*parts, "ckp_file"} - {"data"}
    root = inputs.config.root
    has_task = "task" in find_built_sections(inputs.given.overridden)
    return replace(
        inputs,
        given=replace(inputs.given, parts=parts),
        config=drop_sections(inputs.config, gone, parts.get("data"), has_task=has_task),
        replaced={
            name: root.mapping[name].to_plain()
            for name in gone
            if name in root.mapping and name != "ckp_file"
        },
    )


def _name_class(inputs: ExperimentInputs) -> ExperimentInputs:
    """The inputs with the experiment's class in the config, if a config can name it."""
    if inputs.kind is None:
        return inputs
    registry = build_registry(inputs.config, user_dir=inputs.user_dir, project=inputs.project)
    kind = inputs.kind.locate(registry)
    return replace(inputs, kind=kind, config=kind.put_into(inputs.config))


def _check(inputs: ExperimentInputs, runner: str | None) -> CheckedConfig:
    given = inputs.given
    sections = {*given.sections, *find_built_sections(given.overridden)}
    own: Runner | None = given.parts.get("runner")
    has_optimizer = "optim" in {*sections, *inputs.config.root.mapping}
    if own is not None:  # the check knows runners by name only
        runner = "train" if isinstance(own, Train) and has_optimizer else "test"
    checked = check_config(
        inputs.config,
        user_dir=inputs.user_dir,
        project=inputs.project,
        runner=runner,
        given=sections,
        steps=given.overridden,
    )
    if own is None:
        return checked
    report = checked.report
    entries = {name: node for name, node in report.expanded.mapping.items() if name != "runner"}
    problems = report.problems
    if own.needs_optimizer and not has_optimizer:
        what = f"missing; the runner {type(own).__name__!r} needs it"
        problems = (*problems, Problem("optim", what, hint=OPTIMIZER_HINT))
    expanded = replace(report.expanded, value=MappingProxyType(entries))
    return replace(checked, report=replace(report, expanded=expanded, problems=problems))
