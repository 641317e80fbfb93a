"""Replicates, which differ only by seed: the key they share, and means with intervals."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal import durable
from epochal.records.folder.provenance import Origin, get_newest_origins
from epochal.records.layout.attempts import read_attempts
from epochal.text.formatting import format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_IGNORED_KEYS = ("seed", "tag", "desc", "log", "record", "checkpoint")
"""Keys and sections that do not change what a run computes."""

_SEED = "${seed}"
_DIGITS = 16
_NORMAL_QUANTILE = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""

_ASYMPTOTIC_FREEDOM = 200
"""Degrees of freedom above which a series gives Student's distribution to nine digits."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class MeanEstimate:
    """The mean of runs with its 95 % confidence interval; NaN where it is undefined."""

    mean: float
    low: float
    """Lower end of the interval; NaN for a single run, as ``high`` and ``spread``."""

    high: float
    count: int
    spread: float
    """The sample standard deviation of the runs."""

    @property
    def half_width(self) -> float:
        """Half the width of the interval: the number after ±."""
        return self.high - self.mean

    @override
    def __str__(self) -> str:
        """The mean and half its interval: ``0.9412 ± 0.013``."""
        interval = "" if math.isnan(self.half_width) else f" ± {self.half_width:.2g}"
        return f"{format_value(self.mean)}{interval}"


def replicate_key(run: Mapping[str, Any], provenance: Mapping[str, Any]) -> str:
    """A digest that is equal for runs that differ only by seed; empty when the config is lost.

    Tag, description, logging and record options do not count. The imported code of the project
    does, as do the versions of Epochal and torch, and changes made when a run was resumed.
    """
    values = {
        key: _value(origin)
        for key, origin in get_newest_origins(provenance).items()
        if not _is_ignored_key(key) and "value" in origin
    }
    if not values:
        return ""
    attempts = read_attempts(run)
    codes = {_digest(sorted(one.code.items())) for one in attempts if one.code}
    changes = {text for one in attempts for text in one.overrides if not _is_ignored_key(text)}
    facts = {name: run.get(name) for name in ("project", "runner", "epochal", "torch")}
    return _digest([sorted(values.items()), facts, sorted(codes), sorted(changes)])


def latest_per_seed(seeds: Sequence[object]) -> list[int]:
    """The indices of the last run of each seed."""
    return sorted({repr(seed): index for index, seed in enumerate(seeds)}.values())


def estimate_mean(values: Iterable[float]) -> MeanEstimate:
    """The mean of independent values, with the 95 % interval of Student's distribution."""
    known = [float(value) for value in values]
    count = len(known)
    if not count or not all(map(math.isfinite, known)):
        mean = sum(known) / count if count else math.nan
        return MeanEstimate(mean=mean, low=math.nan, high=math.nan, count=count, spread=math.nan)
    mean = math.fsum(value / count for value in known)
    if min(known) == max(known):
        mean = known[0]  # a rounded mean would differ from them, by 6.6e-19 or so
    if count == 1:
        return MeanEstimate(mean=mean, low=math.nan, high=math.nan, count=1, spread=math.nan)
    largest = max(abs(value - mean) for value in known) or 1.0  # squares must not overflow
    squares = math.fsum(((value - mean) / largest) ** 2 for value in known)
    spread = largest * math.sqrt(squares / (count - 1))
    half = t_critical_value(count - 1) * spread / math.sqrt(count)
    return MeanEstimate(mean=mean, low=mean - half, high=mean + half, count=count, spread=spread)


@lru_cache(maxsize=256)
def t_critical_value(freedom: int) -> float:
    """The number of standard errors on each side of the mean in a 95 % interval."""
    if freedom > _ASYMPTOTIC_FREEDOM:
        return _t_critical_value_asymptotic(freedom)
    low, high = 0.0, math.pi / 2
    while (angle := (low + high) / 2) not in (low, high):
        if _t_probability_within(angle, freedom) < 0.95:
            low = angle
        else:
            high = angle
    return math.tan(angle) * math.sqrt(freedom)


def _t_probability_within(angle: float, freedom: int) -> float:
    """The share of Student's distribution within ±t, where t is tan(angle) * sqrt(freedom).

    The finite sums for whole degrees of freedom: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2
    term = cosine if is_odd else 1.0
    total = term if freedom > 1 else 0.0
    for number in range(2 + is_odd, freedom - 1, 2):
        term *= cosine * cosine * (number - 1) / number
        total += term
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total


def _t_critical_value_asymptotic(freedom: int) -> float:
    """The same from the normal distribution, by the series in 1 / freedom (26.7.5)."""
    z = _NORMAL_QUANTILE
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, start=1))


def _value(origin: Origin) -> object:
    """A value as written if it depends on the seed; a whole float as an integer."""
    text, value = origin.get("text"), origin["value"]
    if isinstance(text, str) and _SEED in text:
        return text
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_ignored_key(key: str) -> bool:
    return key.partition("=")[0].partition(".")[0] in _IGNORED_KEYS


def _digest(value: object) -> str:
    return hashlib.sha256(durable.encode_json(value)).hexdigest()[:_DIGITS]
