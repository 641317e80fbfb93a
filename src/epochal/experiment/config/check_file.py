"""Checks every run of a series before the first one starts; imports nothing that they name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from epochal.check import CheckReport, Default, build_registry, check
from epochal.config import load, load_variants
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.choices import to_overrides
from epochal.records.secrets import hiding_secrets, iter_config_secrets, redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from epochal.config import Config
    from epochal.experiment.config.choices import Choices
    from epochal.registry import Registry

ALL_VARIANTS = "all"


@final
@dataclass(frozen=True)
class FileCheck:
    """What is wrong with one file, with all variants that were asked for."""

    path: Path
    problems: tuple[Problem, ...]
    defaults: tuple[Default, ...] = ()
    exit_code: int = ConfigError.exit_code


def check_file(
    path: Path, overrides: Sequence[str], choices: Choices, *, is_plain_too: bool = False
) -> FileCheck:
    """Every mistake of a file and of the variants that were chosen.

    Args:
        path: The config file.
        overrides: Changes to it, as typed.
        choices: What else belongs to the run.
        is_plain_too: Whether the file is also checked without any variant.
    """
    try:
        changes = to_overrides(choices, overrides)
        checked = list(_check(path, changes, choices, is_plain_too=is_plain_too))
    except ConfigError as error:  # a file that cannot be read at all
        return FileCheck(path, tuple(map(_redact, error.problems)), exit_code=error.exit_code)
    found = dict.fromkeys(problem for _, report in checked for problem in report.problems)
    problems, _ = split_problems(choices, tuple(found))
    if problems:
        with hiding_secrets(
            secret for config, _ in checked for secret in iter_config_secrets(config.root)
        ):
            problems = tuple(map(_redact, problems))
    return FileCheck(path, problems, checked[0][1].defaults)


def _redact(problem: Problem) -> Problem:
    """A problem without the secrets of the config that it quotes."""
    place = problem.place and replace(problem.place, text=redact(problem.place.text))
    what, hint = (redact(text, is_code=True) for text in (problem.what, problem.hint))
    return replace(problem, what=what, place=place, hint=hint)


def split_problems(
    choices: Choices, problems: Sequence[Problem]
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Mistakes that matter in any case, and those that matter only if a new run begins.

    A run that goes on has its weights from a checkpoint, whatever became of ``init_from``, and
    does not wait for a password that only its mail needs.
    """
    if choices.get("resume") is None:
        return tuple(problems), ()
    beginning = tuple(one for one in problems if _concerns_beginning(one.key))
    return tuple(one for one in problems if one not in beginning), beginning


def _concerns_beginning(key: str) -> bool:
    return key in ("init_from", "init_from.path") or key.startswith("notify.")


def _check(
    path: Path, changes: Sequence[str], choices: Choices, *, is_plain_too: bool
) -> Iterator[tuple[Config, CheckReport]]:
    user_dir = _path(choices.get("user_dir"))
    registry: Registry | None = None
    for config in _configs(path, changes, choices, is_plain_too=is_plain_too):
        registry = build_registry(config, user_dir=user_dir, like=registry)
        yield config, check(config, registry)


def _configs(
    path: Path, changes: Sequence[str], choices: Choices, *, is_plain_too: bool
) -> Iterator[Config]:
    allow_python = choices.get("allow_python", False)
    chosen = choices.get("variant")
    if chosen != ALL_VARIANTS:
        yield load(path, variant=chosen, overrides=changes, allow_python=allow_python)
        return
    for config in load_variants(path, overrides=changes, allow_python=allow_python):
        if is_plain_too or not config.variants or config.variant is not None:
            yield config


def _path(folder: Path | str | None) -> Path | None:
    from pathlib import Path

    return None if folder is None else Path(folder)
