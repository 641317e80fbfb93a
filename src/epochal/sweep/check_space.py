"""Checks the search space against the config: every choice, and both ends of every range."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.config import load
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.check_file import check_config, drop_sections
from epochal.sweep.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.config import Config
    from epochal.experiment.config.check_file import CheckedConfig
    from epochal.sweep.settings import SweepSettings
    from epochal.sweep.space import Values

_MAX_SHOWN = 40


def check_sweep(
    checked: CheckedConfig, *, allow_python: bool = False
) -> tuple[SweepSettings | None, list[Problem]]:
    """The settings of the sweep in a config, and every mistake in it and in its trials."""
    config = checked.config
    try:
        settings = read_settings(config.sweep, checked.report.expanded)
    except ConfigError as error:
        return None, list(error.problems)

    def load_trial(values: Values) -> Config:
        return load(
            config.path,
            variant=config.variant,
            overrides=config.overrides,
            trial=values,
            allow_python=allow_python,
        )

    return settings, find_space_problems(checked, settings, load_trial)


def find_space_problems(
    checked: CheckedConfig, settings: SweepSettings, load_trial: Callable[[Values], Config]
) -> list[Problem]:
    """What the config would refuse in some trials, with the place of the range.

    Args:
        checked: The config without the values of a trial.
        settings: What is searched.
        load_trial: Gives the config with the values of a trial.
    """
    known = {(one.key, one.what) for one in checked.report.problems}
    found: dict[tuple[str, str], Problem] = {}
    for parameter, values in settings.space.iter_probes():
        config = load_trial(values)
        config = drop_sections(config, has_task=config.root.get("experiment").value is not None)
        probe = check_config(config, like=checked.registry, project=checked.report.project)
        for problem in probe.report.problems:
            spot = (problem.key, problem.what)
            if spot in known or spot in found:
                continue
            value = repr(values[parameter.key])[:_MAX_SHOWN]
            is_own = problem.key.startswith(parameter.key) or parameter.key.startswith(problem.key)
            what = problem.what if is_own else f"with {value}, {problem.key}: {problem.what}"
            found[spot] = Problem(
                f"sweep.space.{parameter.key}", what, parameter.place or problem.place, problem.hint
            )
    return list(found.values())
