"""Checks a whole config: every section, missing sections, and rules between sections."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.check.sections.experiment_class import (
    find_built_sections,
    is_read_by_steps,
    read_overridden_steps,
)
from epochal.check.sections.form_fields import check_exposed
from epochal.check.sections.losses import (
    check_batch_loss_conflict,
    check_loss_section,
    check_metric_inputs,
    check_output_stages,
)
from epochal.check.sections.methods import (
    find_missing_return,
    find_uncalled_methods,
    find_wrong_parameters,
    has_method,
)
from epochal.check.sections.monitor import check_monitor, check_watched_metrics
from epochal.check.sections.notify import check_notify
from epochal.check.sections.optim import check_optim, check_optimizer_losses
from epochal.check.sections.section_shapes import expand_section
from epochal.check.sections.sections import SECTIONS, section_signature
from epochal.check.sections.stages import expand_stages
from epochal.check.sections.value_rules import check_rules, check_splits
from epochal.check.signatures.classes import binds_name, class_definitions
from epochal.check.signatures.parameters import MISSING
from epochal.check.signatures.signature import read_signature
from epochal.check.values.checker import ConfigChecker, Default
from epochal.check.values.unknown_keys import describe_unknown, meant_section, section_hint
from epochal.config.inherit import BASE
from epochal.config.node import TASK_OPENING, Node, from_plain
from epochal.errors import COMMAND_LINE, ConfigError, Place, nearest
from epochal.registry.project import find_project
from epochal.registry.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from epochal.config import Config
    from epochal.errors import Problem
    from epochal.registry import Project
    from epochal.registry.parsed_module import Definition

_DEFAULT = Place("default")
_LIGHTNING_TASK = "epochal.adapters.lightning.LightningTask"
_LIGHTNING_EXPERIMENT = "epochal.adapters.lightning.LightningExperiment"
_RUNNERS = {
    "epochal.engine.runner.Train": "train",
    "epochal.engine.runner.Test": "test",
    "epochal.engine.runner.Predict": "predict",
}


@final
@dataclass(frozen=True, slots=True, repr=False)
class CheckReport:
    """The outcome of checking one config."""

    problems: tuple[Problem, ...]
    """Every mistake, in the order of files and lines."""

    expanded: Node
    """The config with every known default filled in; the parts are built from it."""

    defaults: tuple[Default, ...]
    project: Project

    @property
    def ok(self) -> bool:
        """Whether there are no mistakes."""
        return not self.problems

    @override
    def __repr__(self) -> str:  # an interactive session shows it
        return str(self)

    @override
    def __str__(self) -> str:
        if self.problems:
            return "\n\n".join(str(problem) for problem in self.problems)
        count = len(self.defaults)
        return f"no mistakes, {count} default{'' if count == 1 else 's'}"


def build_registry(
    config: Config,
    *,
    user_dir: Path | None = None,
    like: Registry | None = None,
    project: Project | None = None,
) -> Registry:
    """The registry of the project that contains the config's file, with its ``imports``.

    ``project`` replaces that project, as for a frozen job. ``like``, the registry of a similar
    config, is returned if it fits: its caches are filled.
    """
    start = config.path.absolute().parent if config.path is not None else Path.cwd()
    imports = [node.value for node in config.root.get("imports").elements]
    names = [name for name in imports if isinstance(name, str)]
    tops = {name.partition(".")[0] for name in (*names, *_dotted_types(config.root))}
    project = project or find_project(start, user_dir=user_dir, modules=tops)
    if like is not None and (like.project, like.imports) == (project, tuple(names)):
        return like
    return Registry(project, names)


def _dotted_types(root: Node) -> Iterator[str]:
    """The dotted paths that specs name, and those written in place of a whole section."""
    names = ("experiment", *(name for name in SECTIONS if SECTIONS[name].kind))
    bare = [root.mapping[name] for name in names if name in root.mapping]
    waiting = [root]
    for node in waiting:
        waiting.extend((*node.elements, *node.mapping.values()))
        bare.extend(child for key, child in node.mapping.items() if key == "type")
    for node in bare:
        if isinstance(node.value, str) and "." in node.value:
            yield node.value


def check(
    config: Config,
    registry: Registry | None = None,
    *,
    runner: str | None = None,
    given: Collection[str] = (),
    steps: Collection[str] | None = None,
) -> CheckReport:
    """Every mistake of a config at once, and the config with all defaults filled in.

    Nothing that the config names is imported. ``runner`` replaces the one in the config;
    ``given`` are the sections whose parts exist as objects already, including ``hooks`` and
    ``metrics`` if there are any; ``steps`` are the build steps that the experiment's class
    overrides, by default those of the class that the config names.
    """
    registry = registry if registry is not None else build_registry(config)
    reported = frozenset(problem.key for problem in config.problems)
    checker = ConfigChecker(registry, config.broken, reported)
    written = dict(config.root.mapping)
    if runner is not None:
        written["runner"] = from_plain(runner, place=Place(COMMAND_LINE), layer=COMMAND_LINE)
    meant = _report_unknown(checker, written)
    if steps is None:
        steps = read_overridden_steps(checker, written.get("experiment"))
    given = {*given, *find_built_sections(steps)}
    entries = {
        name: node
        if is_read_by_steps(name, node, steps)
        else expand_section(checker, SECTIONS[name], node)
        for name, node in written.items()
        if name in SECTIONS and (node.value is not None or SECTIONS[name].shape == "value")
    }
    _fill_sections(checker, entries, given, config)
    if "stages" in entries:
        expand_stages(checker, entries["stages"], entries, given)
    _check_required(checker, entries, meant.union(given), config)
    ordered = {name: entries[name] for name in SECTIONS if name in entries}
    root = Node(MappingProxyType(ordered), config.root.place)
    check_splits(checker, root)
    check_rules(checker, root)
    check_loss_section(checker, root)
    check_metric_inputs(checker, root)
    check_output_stages(checker, root)
    check_optim(checker, root)
    check_notify(checker, root)
    _check_code(checker, root, given)
    _check_imports(checker, written)
    check_exposed(checker, root)
    problems = sort_problems((*config.problems, *checker.problems))
    return CheckReport(problems, root, tuple(checker.defaults), registry.project)


def sort_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """The problems without duplicates, sorted by file, line and column."""

    def position(problem: Problem) -> tuple[str, int, int]:
        place = problem.place
        return ("", 0, 0) if place is None else (place.name, place.line, place.column)

    return tuple(sorted(dict.fromkeys(problems), key=position))


def _report_unknown(checker: ConfigChecker, written: Mapping[str, Node]) -> set[str]:
    """Report sections that do not exist; returns the sections that were probably meant."""
    meant = set[str]()
    for name, node in written.items():
        if name in SECTIONS:
            continue
        hint = section_hint(name, node) or _nested_hint(name, node)
        hint = hint or _owner_hint(checker, name, written)
        close = None if hint else meant_section(name) or nearest(name, SECTIONS)
        hint = hint or (f"did you mean {close!r}?" if close else "your own values go under 'extra'")
        checker.report(name, describe_unknown(name, word="section"), node.key_place, hint)
        meant |= {close} if close else set()
    if BASE in meant:  # the files that it names may contain any section
        checker.broken |= {""}
    return meant


def _nested_hint(name: str, node: Node) -> str:
    """How to write a dotted key, which only overrides, variants and sweeps may have."""
    first, *others = name.split(".")
    if first not in SECTIONS or not others or node.is_mapping:
        return ""
    return f"write {first}: {{{': {'.join(others)}: {node.value}{'}' * len(others)}"


def _owner_hint(checker: ConfigChecker, name: str, written: Mapping[str, Node]) -> str:
    """Where to write a top-level key that is an option of a section, or of its component."""
    for section in SECTIONS.values():
        own = section_signature(section, checker.registry.finder)
        if section.shape in ("options", "spec") and own.get(name) is not None:
            return f"did you mean '{section.name}.{name}'?"
    for section in SECTIONS.values():
        node = written.get(section.name, _default(None))
        chosen = node.get("type").value
        if section.shape != "spec" or not isinstance(chosen, str):
            continue
        with suppress(ConfigError):  # it is reported with its section
            factory = checker.registry.find(section.kind, chosen)
            if read_signature(factory, checker.registry.finder).get(name) is not None:
                return f"did you mean '{section.name}.{name}'?"
    return ""


def _fill_sections(
    checker: ConfigChecker, entries: dict[str, Node], given: Collection[str], config: Config
) -> None:
    if "runner" not in entries:
        entries["runner"] = expand_section(checker, SECTIONS["runner"], _default("train"))
    if "task" not in {*entries, *given} and {"model", "data"} <= entries.keys():
        entries["task"] = expand_section(checker, SECTIONS["task"], _default("module"))
    fallbacks = {
        "project": checker.registry.project.name,
        "tag": config.path.stem if config.path is not None else "run",
    }
    for name, section in SECTIONS.items():
        if section.shape == "options" and name not in entries:
            entries[name] = expand_section(checker, section, _default({}))
        elif section.default is not MISSING and name not in entries:
            value = fallbacks.get(name, section.default)
            entries[name] = _default(value)
            checker.defaults.append(Default(name, value, "epochal"))
    _fill_runs_dir(checker, entries)


def _fill_runs_dir(checker: ConfigChecker, entries: dict[str, Node]) -> None:
    """Use the project's folder of runs where the config names none."""
    runs_dir, record = str(checker.registry.project.runs_dir), entries["record"]
    node = record.mapping.get("log_dir")
    if node is None or node.layer != "default" or node.value == runs_dir:
        return
    values = {**record.mapping, "log_dir": _default(runs_dir)}
    entries["record"] = replace(record, value=MappingProxyType(values))
    checker.defaults[:] = [
        Default(one.key, runs_dir, "the project") if one.key == "record.log_dir" else one
        for one in checker.defaults
    ]


def _default(value: object) -> Node:
    return from_plain(value, place=_DEFAULT, layer="default")


def _check_required(
    checker: ConfigChecker, entries: Mapping[str, Node], meant: set[str], config: Config
) -> None:
    needs = {
        "model": "add model: {type: package.module.Class}",
        "task": "add task: {type: package.module.Class}, or data: for a model with its own loss",
    }
    kind = _runner_kind(checker)
    if kind == "train" and not _brings_own_optimizers(checker):
        needs["optim"] = "add optim: {type: AdamW, lr: 1e-3}"
        task = checker.factories.get("task")
        if task is not None and task.dotted == _LIGHTNING_TASK:
            needs["optim"] += f", or experiment: {_LIGHTNING_EXPERIMENT} for the module's own"
    place = Place(str(config.sources[0].path)) if config.sources else None
    factory = checker.factories.get("runner")
    runner = kind if factory is None else factory.name
    for name, hint in needs.items() if kind else ():
        close = {name, "data"} if name == "task" else {name}
        if name not in entries and not close & meant and not checker.is_broken(name):
            checker.report(name, f"missing; the runner {runner!r} needs it", place, hint)


def _runner_kind(checker: ConfigChecker) -> str:
    """The built-in runner that it is or extends; empty for any other runner."""
    definition = checker.find_definition("runner")
    factory = checker.factories.get("runner")
    if definition is None:
        return factory.name if factory is not None and factory.name in _RUNNERS.values() else ""
    chain, _ = class_definitions(definition, checker.finder)
    return next((_RUNNERS[item.dotted] for item in chain if item.dotted in _RUNNERS), "")


def _brings_own_optimizers(checker: ConfigChecker) -> bool:
    """Whether the user's runner class sets ``needs_optimizer``."""
    runner = checker.find_definition("runner")
    chain = class_definitions(runner, checker.finder)[0] if runner is not None else []
    return any(
        binds_name(item.node, "needs_optimizer")
        for item in chain
        if not item.dotted.startswith("epochal.engine.runner.")
    )


def _check_code(checker: ConfigChecker, root: Node, given: Collection[str]) -> None:
    for path, factory in checker.factories.items():
        if factory.kind in ("task", "hook"):
            definition = checker.find_definition(path)
            if definition is not None:
                checker.problems.extend(
                    find_uncalled_methods(path, factory.kind, definition, checker.finder)
                )
    task = checker.find_definition("task") if "task" not in given else None
    if task is not None:
        _check_task_values(checker, root, task)
        has_loss = "loss" in {*root.mapping, *given}
        _check_task(checker, root, task, has_loss=has_loss)
        if not _takes_own_steps(checker, root, given):
            of_stages = any("loss" in stage.mapping for stage in root.get("stages").elements)
            has_loss = has_loss or of_stages or checker.is_broken("loss")
            problems = find_wrong_parameters("task.type", task, checker.finder, has_loss=has_loss)
            checker.problems.extend(problems)
    task = None if checker.is_broken("task") else task
    check_monitor(checker, root, None if {"metrics", "loss"} & {*given} else task)
    check_watched_metrics(checker, root, task, given)
    if "loss" not in given:
        check_optimizer_losses(checker, root, task)


def _check_task(checker: ConfigChecker, root: Node, task: Definition, *, has_loss: bool) -> None:
    """Report methods that the runner needs and the task lacks, and a loss computed twice."""
    kind = _runner_kind(checker)
    if kind == "train":
        check_batch_loss_conflict(checker, root, task)
    needs = {"batch_forward": "(self, model, batch)", "batch_loss": "(self, out, batch)"}
    wanted = {"train": ["batch_forward", "batch_loss"], "": []}.get(kind, ["batch_forward"])
    verb = {"train": "training", "test": "testing", "predict": "predicting"}.get(kind, kind)
    place = root.get("task.type").place
    for name in wanted:
        if name == "batch_loss" and (has_loss or checker.is_broken("loss")):
            continue
        if has_method(task, name, checker.finder) is False:
            hint = f"write def {name}{needs[name]} in class {task.node.name}"
            hint += ", or a section loss" if name == "batch_loss" else ""
            what = f"{task.dotted} has no {name!r}, which {verb} needs"
            checker.report("task.type", what, place, hint)
        checker.problems.extend(find_missing_return("task.type", name, task, checker.finder))


def _takes_own_steps(checker: ConfigChecker, root: Node, given: Collection[str]) -> bool:
    """Whether a runner or an updater of the user may call the task in another way."""
    if {"runner", "updater"} & {*given} or root.get("updater").value is not None:
        return True
    runner = checker.find_definition("runner")
    return runner is not None and not runner.dotted.startswith("epochal.engine.runner.")


def _check_task_values(checker: ConfigChecker, root: Node, task: Definition) -> None:
    """Report each ``${task:NAME}`` that the task's class does not have."""
    for key, node in root.iter_leaves():
        if node.is_deferred:
            name = str(node.value).removeprefix(TASK_OPENING).rstrip("}").partition(".")[0]
            if has_method(task, name, checker.finder) is False:
                hint = f"set self.{name} in class {task.node.name}"
                checker.report(key, f"{task.dotted} has no attribute {name!r}", node.place, hint)


def _check_imports(checker: ConfigChecker, written: Mapping[str, Node]) -> None:
    root = Node(MappingProxyType(dict(written)))
    for problem in checker.registry.problems:
        checker.report(problem.key, problem.what, root.get(problem.key).place, problem.hint)
