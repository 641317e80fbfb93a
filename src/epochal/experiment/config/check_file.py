"""Checks every run of a series before the first one starts; imports nothing that they name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from epochal.check import CheckReport, build_registry, check
from epochal.config import from_plain, load, load_variants
from epochal.engine.interfaces.splits import split_name
from epochal.errors import ConfigError, Place, Problem
from epochal.experiment.config.choices import to_overrides
from epochal.records.secrets import hiding_secrets, iter_config_secrets, redact

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from epochal.check import Default
    from epochal.config import Config, Node
    from epochal.experiment.config.choices import Choices
    from epochal.registry import Project, Registry

ALL_VARIANTS = "all"
BASE_VARIANT = "base"
_TITLES = ("tag", "project")


@final
@dataclass(frozen=True)
class CheckedConfig:
    """A loaded config and the result of checking it, handed on to the run."""

    config: Config
    report: CheckReport
    registry: Registry
    """Finds what the config names; it has read that code already."""


def check_config(
    config: Config,
    *,
    user_dir: Path | None = None,
    runner: str | None = None,
    given: Collection[str] = (),
    steps: Collection[str] | None = None,
    like: Registry | None = None,
    project: Project | None = None,
) -> CheckedConfig:
    """The config with every mistake in it; see ``check`` for ``runner``, ``given`` and ``steps``.

    ``project`` is that of a frozen job. ``like`` is the registry of a similar config, reused if it
    fits this one.
    """
    registry = build_registry(config, user_dir=user_dir, like=like, project=project)
    report = check(config, registry, runner=runner, given=given, steps=steps)
    return CheckedConfig(config, report, registry)


def drop_sections(
    config: Config,
    gone: Collection[str] = (),
    loaders: Mapping[str, object] | None = None,
    *,
    has_task: bool = False,
) -> Config:
    """The config without the sections ``gone`` and the splits that have ``loaders``.

    An empty ``tag:`` or ``project:`` counts as missing, and a model with data needs no task,
    unless the experiment's class ``has_task``.
    """
    root = config.root
    entries = {name: node for name, node in root.mapping.items() if name not in gone}
    for name in _TITLES:
        if name in entries and entries[name].value is None:
            del entries[name]
    if loaders is not None and "data" in entries:
        entries["data"] = _without_splits(entries["data"], loaders)
    available = {*entries, *gone, *(() if loaders is None else ("data",))}
    if not has_task and "task" not in available and available >= {"model", "data"}:
        entries["task"] = from_plain("module", place=Place("default"), layer="default")
    return replace(config, root=replace(root, value=MappingProxyType(entries)))


def _without_splits(data: Node, given: Mapping[str, object]) -> Node:
    splits = {split_name(name) for name in given}
    kept = {name: node for name, node in data.mapping.items() if split_name(name) not in splits}
    return replace(data, value=MappingProxyType(kept))


@final
@dataclass(frozen=True)
class FileCheck:
    """Every mistake of one file and of the variants that were asked for."""

    path: Path
    problems: tuple[Problem, ...]
    checked: tuple[CheckedConfig, ...] = ()
    """One for each run; empty if the file cannot be read at all."""

    exit_code: int = ConfigError.exit_code

    @property
    def defaults(self) -> tuple[Default, ...]:
        """The values that the file leaves to their defaults."""
        return self.checked[0].report.defaults if self.checked else ()


def check_file(
    path: Path,
    overrides: Sequence[str],
    choices: Choices,
    *,
    is_plain_too: bool = False,
    like: Registry | None = None,
) -> FileCheck:
    """Every mistake of a file and of the chosen variants; also without any if ``is_plain_too``.

    ``like`` is the registry of an earlier check, which has read most of the code already.
    """
    try:
        changes = to_overrides(choices, overrides)
        checked = tuple(_check(path, changes, choices, like, is_plain_too=is_plain_too))
    except ConfigError as error:  # a file that cannot be read at all
        return FileCheck(path, tuple(map(_redact, error.problems)), exit_code=error.exit_code)
    found: dict[tuple[object, ...], Problem] = {}  # variants may differ in their hints
    for problem in (problem for one in checked for problem in one.report.problems):
        found.setdefault((problem.key, problem.what, problem.place), problem)
    problems = find_blocking_problems(choices, found.values())
    if problems:
        with hiding_secrets(
            secret for one in checked for secret in iter_config_secrets(one.config.root)
        ):
            problems = tuple(map(_redact, problems))
    return FileCheck(path, problems, checked)


def _redact(problem: Problem) -> Problem:
    """The problem without the secrets of the config that it quotes."""
    place = problem.place and replace(problem.place, text=redact(problem.place.text))
    what, hint = (redact(text, is_code=True) for text in (problem.what, problem.hint))
    return replace(problem, what=what, place=place, hint=hint)


def find_blocking_problems(choices: Choices, problems: Collection[Problem]) -> tuple[Problem, ...]:
    """The mistakes that prevent a run; some of them do not matter to a resumed one.

    It has its weights from a checkpoint, not from ``init_from``, and does not need a password that
    is only for mail.
    """
    if choices.get("resume") is None:
        return tuple(problems)
    ignored = ("init_from", "init_from.path")
    return tuple(one for one in problems if one.key not in ignored and one.key[:7] != "notify.")


def names_several(chosen: str | None) -> bool:
    """Whether a choice of variants may mean several runs."""
    return chosen is not None and (chosen == ALL_VARIANTS or "," in chosen)


def needs_expansion(chosen: str) -> bool:
    """Whether a choice is more than the name of one variant."""
    return chosen == BASE_VARIANT or names_several(chosen)


def expand_variants(chosen: str, known: Collection[str]) -> list[str | None]:
    """The variants that a choice such as ``base,all`` or ``wide,deep`` means, in that order.

    ``base`` is the config without a variant, which is None, unless a variant has that name.
    """
    names: list[str | None] = []
    for name in [chosen] if chosen in known else map(str.strip, chosen.split(",")):
        if name == ALL_VARIANTS:
            names += [*known] or [None]
        else:
            names.append(None if name == BASE_VARIANT and name not in known else name)
    return list(dict.fromkeys(names))


def _check(
    path: Path,
    changes: Sequence[str],
    choices: Choices,
    registry: Registry | None,
    *,
    is_plain_too: bool,
) -> Iterator[CheckedConfig]:
    allow_python, chosen = choices.get("allow_python", False), choices.get("variant")
    configs: Iterable[Config]
    if chosen is not None and needs_expansion(chosen):
        found = {
            one.variant: one
            for one in load_variants(path, overrides=changes, allow_python=allow_python)
        }
        names = expand_variants(chosen, [name for name in found if name is not None])
        configs = [
            found[name] if name in found else load(path, variant=name, overrides=changes)
            for name in dict.fromkeys([*([None] if is_plain_too else []), *names])
        ]
    else:
        configs = [load(path, variant=chosen, overrides=changes, allow_python=allow_python)]
    folder = choices.get("user_dir")
    user_dir = None if folder is None else Path(folder)
    for config in configs:
        named = config.root.get("experiment").value  # the check reads which steps it overrides
        config = drop_sections(config, has_task=named is not None)
        checked = check_config(config, user_dir=user_dir, like=registry)
        registry = checked.registry
        yield checked
