"""Checks the search space against the config: every choice, and both ends of every range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochal.check.sections.monitor import computes_eval_loss
from epochal.config import load
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.check_file import check_config, drop_sections
from epochal.sweep.sampling import create_sampler
from epochal.sweep.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from epochal.config import Config, FrozenSource
    from epochal.experiment.config.check_file import CheckedConfig
    from epochal.sweep.settings import SweepSettings
    from epochal.sweep.space import SweepParameter, Values

_MAX_SHOWN = 40


def check_sweep(
    checked: CheckedConfig,
    *,
    source: FrozenSource | Mapping[str, Any] | None = None,
    allow_python: bool = False,
) -> tuple[SweepSettings | None, list[Problem]]:
    """The settings of the sweep in a config, and every mistake in it and in its trials.

    ``source`` is what the config was loaded from, if not from its file.
    """
    config = checked.config
    try:
        settings = read_settings(config.sweep, checked.report.expanded)
    except ConfigError as error:
        return None, list(error.problems)

    def load_trial(values: Values) -> Config:
        return load(
            source or config.path,
            variant=config.variant,
            overrides=config.overrides,
            trial=values,
            allow_python=allow_python,
        )

    return settings, find_space_problems(checked, settings, load_trial)


def find_space_problems(
    checked: CheckedConfig, settings: SweepSettings, load_trial: Callable[[Values], Config]
) -> list[Problem]:
    """What the config would refuse in some trials, with the place of the range; missing metrics.

    Args:
        checked: The config without the values of a trial.
        settings: What is searched.
        load_trial: Gives the config with the values of a trial.
    """
    found: dict[tuple[str, str], Problem] = {}
    for parameter, values in settings.space.iter_probes():
        for problem in _find_new_problems(checked, load_trial(values)):
            spot = (problem.key, problem.what)
            if spot in found:
                continue
            swept = [one for one in settings.space.parameters if one.key in values]
            owner = _find_owner(problem.key, parameter, swept)
            value = repr(values[owner.key])[:_MAX_SHOWN]
            is_own = _is_within(problem.key, owner.key) or _is_within(owner.key, problem.key)
            what = problem.what if is_own else f"with {value}, {problem.key}: {problem.what}"
            found[spot] = Problem(
                f"sweep.space.{owner.key}", what, owner.place or problem.place, problem.hint
            )
    problems = [*found.values(), *_find_metric_problems(checked, settings, load_trial)]
    if not problems and settings.constraints and not _can_propose(settings):
        node = checked.config.sweep.find("constraints") if checked.config.sweep else None
        what, hint = "no values of the space meet all of them", "change them, or the ranges"
        problems.append(Problem("sweep.constraints", what, node and node.place, hint))
    return problems


def _find_owner(
    key: str, probed: SweepParameter, swept: Sequence[SweepParameter]
) -> SweepParameter:
    """The parameter that a mistake at ``key`` belongs to; else the one that was probed."""
    above = (one for one in swept if _is_within(key, one.key))
    below = (one for one in (probed, *swept) if _is_within(one.key, key))
    return next(above, None) or next(below, None) or probed


def _is_within(key: str, other: str) -> bool:
    """Whether a dotted key is another one, or below it."""
    return key == other or key.startswith((f"{other}.", f"{other}["))


def _can_propose(settings: SweepSettings) -> bool:
    """Whether a random search finds values that meet the constraints."""
    sampler = create_sampler(
        "grid" if settings.method == "grid" else "random",
        settings.space,
        is_allowed=settings.is_allowed,
        directions=(),
        seed=settings.seed,
        observed={},
    )
    return sampler.ask(0) is not None


def _find_metric_problems(
    checked: CheckedConfig, settings: SweepSettings, load_trial: Callable[[Values], Config]
) -> list[Problem]:
    """Objectives and constraints whose metric no trial produces."""
    sweep = checked.config.sweep
    assert sweep is not None  # it has been read
    # As the monitor of a trial, an objective would switch the loss of evaluations on.
    eval_loss = computes_eval_loss(checked.report.expanded)
    watched = [("objective", str(one)) for one in settings.objectives]
    watched += [("constraints", f"{one.sign}{one.metric}") for one in settings.metric_constraints]
    found = []
    for key, metric in watched:
        node = sweep.find(key) or (sweep.find("metric") if key == "objective" else None)
        if node is None:
            continue  # it is the monitor, which is checked with the config
        config = load_trial({"monitor": metric, "train.eval_loss": eval_loss})
        for problem in _find_new_problems(checked, config):
            if problem.key == "monitor":
                found.append(Problem(f"sweep.{key}", problem.what, node.place, problem.hint))
    return found


def _find_new_problems(checked: CheckedConfig, trial: Config) -> Iterator[Problem]:
    """The mistakes of a trial that its config does not have."""
    known = {(one.key, one.what) for one in checked.report.problems}
    trial = drop_sections(trial, has_task=trial.root.get("experiment").value is not None)
    probe = check_config(trial, like=checked.registry, project=checked.report.project)
    yield from (one for one in probe.report.problems if (one.key, one.what) not in known)
