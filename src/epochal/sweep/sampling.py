"""Proposes the values of trials: grid, random and quasi-random, and the samplers of Optuna."""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, final

from epochal.sweep.space import (
    Distribution,
    NormalRange,
    Space,
    ValueChoice,
    ValueRange,
    Values,
    identify,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Method = Literal["grid", "random", "quasi-random", "tpe", "gp", "cma-es"]
_MAX_REJECTED = 10_000
_MAX_ASKED = 5
"""How often Optuna is asked for values that meet the constraints, before random ones are taken."""


@final
@dataclass(frozen=True, slots=True)
class Observation:
    """What a sampler learns from one trial that has ended."""

    number: int
    values: Values
    objectives: tuple[float, ...] | None
    """One value per objective; None if the trial failed."""

    violation: float = 0.0
    """How far the constraints on metrics were missed; 0 if all hold."""

    is_pruned: bool = False


class Sampler(Protocol):
    """Proposes values; the same numbers and observations give the same proposals."""

    def ask(self, number: int) -> Values | None:
        """The values of trial ``number``; None if there are no more."""
        ...

    def adopt(self, number: int, values: Values) -> None:
        """Count a trial that an earlier process began as running."""
        ...

    def tell(self, observation: Observation) -> None:
        """Learn from a trial that has ended."""
        ...


@final
class GridSampler:
    """Every combination once, in the order of the keys; ``seen`` are trials that exist."""

    def __init__(
        self, space: Space, is_allowed: Callable[[Values], bool], seen: set[str] | None = None
    ) -> None:
        self._seen = set() if seen is None else seen
        self._points = self._iter_points(space, is_allowed)

    def _iter_points(self, space: Space, is_allowed: Callable[[Values], bool]) -> Iterator[Values]:
        for values in space.iter_grid():
            if identify(values) not in self._seen and is_allowed(values):
                yield values

    def ask(self, number: int) -> Values | None:
        """The next combination."""
        return next(self._points, None)

    def adopt(self, number: int, values: Values) -> None:
        """Nothing to learn."""

    def tell(self, observation: Observation) -> None:
        """Nothing to learn."""


@final
class RandomSampler:
    """Independent values, a function of the seed and the number of the trial."""

    def __init__(self, space: Space, is_allowed: Callable[[Values], bool], seed: int = 0) -> None:
        self._space, self._is_allowed, self._seed = space, is_allowed, seed

    def ask(self, number: int) -> Values | None:
        """Random values that meet the constraints."""
        generator = random.Random(f"{self._seed}/{number}")
        for _ in range(_MAX_REJECTED):
            values = self._space.at([generator.random() for _ in self._space.parameters])
            if self._is_allowed(values):
                return values
        return None

    def adopt(self, number: int, values: Values) -> None:
        """Nothing to learn."""

    def tell(self, observation: Observation) -> None:
        """Nothing to learn."""


@final
class QuasiRandomSampler:
    """Values that cover the space evenly: a Kronecker sequence with a random start."""

    def __init__(
        self,
        space: Space,
        is_allowed: Callable[[Values], bool],
        seed: int = 0,
        *,
        num_used: int = 0,
    ) -> None:
        self._space, self._is_allowed = space, is_allowed
        generator = random.Random(f"{seed}/quasi-random")
        self._start = [generator.random() for _ in space.parameters]
        ratio = _root(len(space.parameters))
        self._steps = [ratio ** -(index + 1) % 1.0 for index in range(len(space.parameters))]
        self._next = 0
        for _ in range(num_used):
            self.ask(0)

    def ask(self, number: int) -> Values | None:
        """The next values of the sequence that meet the constraints."""
        for _ in range(_MAX_REJECTED):
            self._next += 1
            pairs = zip(self._start, self._steps, strict=True)
            values = self._space.at([(start + self._next * step) % 1.0 for start, step in pairs])
            if self._is_allowed(values):
                return values
        return None

    def adopt(self, number: int, values: Values) -> None:
        """Nothing to learn."""

    def tell(self, observation: Observation) -> None:
        """Nothing to learn."""


def _root(dimensions: int) -> float:
    """The positive root of x^(d+1) = x + 1, the golden ratio for one dimension."""
    value = 2.0
    for _ in range(64):
        value = (1.0 + value) ** (1.0 / (dimensions + 1))
    return value


@final
class OptunaSampler:
    """TPE, Gaussian process or CMA-ES of Optuna, by ask and tell in memory.

    Each trial is proposed with its own seed, so that a sweep that continues after a crash makes
    the proposals it would have made; CMA-ES continues near the best trials instead.
    """

    def __init__(
        self,
        method: str,
        space: Space,
        is_allowed: Callable[[Values], bool],
        *,
        directions: Sequence[str],
        seed: int = 0,
        has_constraints: bool = False,
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna
        self._method, self._space, self._is_allowed = method, space, is_allowed
        self._seed, self._has_constraints = seed, has_constraints
        self._earlier: list[Any] | None = None
        self._study = optuna.create_study(
            directions=["minimize" if one == "min" else "maximize" for one in directions],
            sampler=self._create(0),
        )
        self._asked: dict[int, Any] = {}

    def _create(self, number: int) -> Any:  # noqa: ANN401 - a class of Optuna
        samplers = self._optuna.samplers
        seed = random.Random(f"{self._seed}/{number}").getrandbits(31)
        if self._method == "gp":
            return samplers.GPSampler(seed=seed)
        if self._method == "cma-es":
            # CMA-ES learns from its own proposals only; those of an earlier process are its start.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
                return samplers.CmaEsSampler(
                    seed=seed, warn_independent_sampling=False, source_trials=self._earlier or None
                )
        return samplers.TPESampler(seed=seed)

    def ask(self, number: int) -> Values | None:
        """Values that look promising after the observations so far."""
        if self._earlier is None:
            trials = self._study.get_trials(deepcopy=False)
            self._earlier = [one for one in trials if one.values is not None]
        for attempt in range(_MAX_ASKED):
            self._study.sampler = self._create(number * _MAX_ASKED + attempt)
            trial = self._study.ask()
            values: Values = {}
            for one in self._space.parameters:
                if one.is_active(values, self._space.fixed):
                    values[one.key] = self._suggest(trial, one.key, one.values)
            if self._is_allowed(values):
                self._asked[number] = trial
                return values
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        # Most of the space is forbidden, which samplers of Optuna do not learn.
        allowed = RandomSampler(self._space, self._is_allowed, self._seed).ask(number)
        if allowed is not None:
            self.adopt(number, allowed)
        return allowed

    def adopt(self, number: int, values: Values) -> None:
        """Count a trial that an earlier process began as running."""
        found = self._describe(values)
        if found is None:
            return
        trials = self._optuna.trial
        self._study.add_trial(trials.create_trial(state=trials.TrialState.RUNNING, **found))
        added = self._study.get_trials(deepcopy=False)[-1]
        self._asked[number] = trials.Trial(self._study, added._trial_id)

    def _describe(self, values: Values) -> dict[str, Any] | None:
        """The values as Optuna stores them; None if they are outside the current space."""
        known = {one.key: one.values for one in self._space.parameters}
        params: dict[str, Any] = {}
        for key, value in values.items():
            params[key] = _find_position(known.get(key), value)
            if params[key] is None:
                return None
        kinds = {key: self._distribution(known[key]) for key in params}
        return {"params": params, "distributions": kinds}

    def _suggest(self, trial: Any, key: str, values: Distribution) -> Any:  # noqa: ANN401
        kind = self._distribution(values)
        if isinstance(values, ValueChoice):
            return values.values[trial.suggest_categorical(key, kind.choices)]
        if isinstance(kind, self._optuna.distributions.IntDistribution):
            return trial.suggest_int(key, kind.low, kind.high, log=kind.log, step=kind.step)
        found = trial.suggest_float(key, kind.low, kind.high, log=kind.log, step=kind.step)
        return values.at(found) if isinstance(values, NormalRange) else found

    def _distribution(self, values: Distribution) -> Any:  # noqa: ANN401 - a class of Optuna
        kinds = self._optuna.distributions
        if isinstance(values, ValueChoice):
            return kinds.CategoricalDistribution(tuple(range(len(values.values))))
        if isinstance(values, NormalRange):
            return kinds.FloatDistribution(0.0, 1.0)
        step = None if values.is_log else values.step
        if values.is_integer:
            low, high = int(values.low), int(values.high)
            return kinds.IntDistribution(low, high, log=values.is_log, step=int(step or 1))
        return kinds.FloatDistribution(values.low, values.high, log=values.is_log, step=step)

    def tell(self, observation: Observation) -> None:
        """Learn from a trial that has ended, of this process or an earlier one."""
        if observation.number not in self._asked:
            self.adopt(observation.number, observation.values)
        trial = self._asked.pop(observation.number, None)
        if trial is None:
            return
        states = self._optuna.trial.TrialState
        if self._has_constraints:
            trial.set_constraint("metrics", observation.violation)
        if observation.objectives is None:
            self._study.tell(trial, state=states.FAIL)
        elif observation.is_pruned and len(observation.objectives) == 1:
            trial.report(observation.objectives[0], 0)
            self._study.tell(trial, state=states.PRUNED)
        else:
            self._study.tell(trial, list(observation.objectives))


def _find_position(values: Distribution | None, value: Any) -> Any:  # noqa: ANN401 - any plain value
    """The value as Optuna stores it; None if it is not in the space."""
    if isinstance(values, ValueChoice):
        return values.values.index(value) if value in values.values else None
    if isinstance(values, ValueRange):
        return value if values.low <= value <= values.high else None
    return None if values is None else values.find_position(value)


def create_sampler(
    method: str,
    space: Space,
    *,
    is_allowed: Callable[[Values], bool],
    directions: Sequence[str],
    seed: int,
    observed: Mapping[int, Values],
    has_constraints: bool = False,
) -> Sampler:
    """The sampler of a method.

    ``observed`` are the values of trials that exist already; ``has_constraints`` tells that
    observations say how far constraints on metrics were missed.
    """
    if method == "grid":
        return GridSampler(space, is_allowed, {identify(one) for one in observed.values()})
    if method == "random":
        return RandomSampler(space, is_allowed, seed)
    if method == "quasi-random":
        return QuasiRandomSampler(space, is_allowed, seed, num_used=len(observed))
    return OptunaSampler(
        method,
        space,
        is_allowed,
        directions=directions,
        seed=seed,
        has_constraints=has_constraints,
    )
