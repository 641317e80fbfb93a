"""Exports a sweep to a storage of Optuna, so that optuna-dashboard can show it."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from epochal.errors import ConfigError, Problem
from epochal.sweep.report.axis import show_value
from epochal.sweep.space import ValueChoice, ValueRange

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from epochal.sweep.settings import SweepSettings
    from epochal.sweep.space import SweepParameter
    from epochal.sweep.trials import Trial

DATABASE, JOURNAL = ".db", ".log"
_PLAIN = (str, int, float, bool, type(None))


def export_study(name: str, settings: SweepSettings, trials: Collection[Trial], path: Path) -> str:
    """Write all trials as an Optuna study; returns the address for optuna-dashboard.

    Args:
        name: The name of the study.
        settings: What was searched.
        trials: Every trial.
        path: A new file; ``.db`` for SQLite, ``.log`` for a journal.

    Raises:
        ConfigError: The file exists, has another suffix, or Optuna is missing.
    """
    suffix = path.suffix.lower()
    if suffix not in (DATABASE, JOURNAL):
        what = f"{path}: the format follows from the name"
        raise ConfigError(
            Problem("--export", what, hint="name it *.db (SQLite) or *.log (journal)")
        )
    if path.exists():
        raise ConfigError(Problem("--export", f"{path} exists", hint="name a new file"))
    try:
        import optuna
    except ImportError as error:
        hint = "pip install 'epochal[sweep]'"
        raise ConfigError(Problem("--export", "needs Optuna", hint=hint)) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    address = f"sqlite:///{path}" if suffix == DATABASE else str(path)
    storage: Any = address
    if suffix == JOURNAL:
        from optuna.storages.journal import JournalFileBackend, JournalStorage

        storage = JournalStorage(JournalFileBackend(address))
    study = optuna.create_study(
        study_name=name,
        storage=storage,
        directions=["minimize" if one.mode == "min" else "maximize" for one in settings.objectives],
    )
    distributions = {
        one.key: _to_distribution(one, [t.values[one.key] for t in trials if one.key in t.values])
        for one in settings.space.parameters
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names([one.metric for one in settings.objectives])
        study.add_trials([_to_frozen(one, settings, distributions) for one in trials])
    return address


def _to_frozen(trial: Trial, settings: SweepSettings, distributions: dict[str, Any]) -> Any:  # noqa: ANN401 - a class of Optuna
    from optuna.trial import TrialState, create_trial

    states = {
        "finished": TrialState.COMPLETE,
        "pruned": TrialState.PRUNED,
        "failed": TrialState.FAIL,
        "running": TrialState.RUNNING,
        "waiting": TrialState.WAITING,
    }
    found = trial.get_objectives(settings)
    state = states[trial.state]
    if state == TrialState.COMPLETE and found is None:
        state = TrialState.FAIL
    kinds = {key: kind for key, kind in distributions.items() if key in trial.values}
    curve = trial.runs[0].curves[0] if trial.runs and trial.runs[0].curves else ()
    paths = [str(run.path) for run in trial.runs if run.path is not None]
    return create_trial(
        state=state,
        values=list(found) if found and state == TrialState.COMPLETE else None,
        params={key: _to_plain(trial.values[key], kind) for key, kind in kinds.items()},
        distributions=kinds,
        user_attrs={"trial": trial.number, "runs": paths, "error": trial.error},
        intermediate_values={
            step: value for step, value in enumerate(curve, 1) if math.isfinite(value)
        }
        if len(settings.objectives) == 1
        else {},
    )


def _to_distribution(parameter: SweepParameter, values: Collection[Any]) -> Any:  # noqa: ANN401 - a class of Optuna
    """The Optuna distribution of a parameter, wide enough for values of an earlier range."""
    from optuna import distributions as kinds

    space = parameter.values
    is_number = all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)
    if isinstance(space, ValueChoice) or not is_number:
        known = [*(space.values if isinstance(space, ValueChoice) else ()), *values]
        return kinds.CategoricalDistribution(tuple(dict.fromkeys(map(_to_choice, known))))
    ends = space.bounds()
    low, high = min([*ends, *values]), max([*ends, *values])
    if (
        isinstance(space, ValueRange)
        and space.is_integer
        and all(one == int(one) for one in values)
    ):
        return kinds.IntDistribution(int(low), int(high), log=space.is_log and low > 0)
    return kinds.FloatDistribution(low, high, log=space.is_log and low > 0)


def _to_plain(value: Any, kind: Any) -> Any:  # noqa: ANN401 - any plain value, a class of Optuna
    return _to_choice(value) if hasattr(kind, "choices") else value


def _to_choice(value: Any) -> Any:  # noqa: ANN401 - any plain value
    return value if isinstance(value, _PLAIN) else show_value(value)
