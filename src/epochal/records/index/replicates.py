"""Runs that differ only by their seed: which belong together, and what their mean is worth."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

from typing_extensions import override

from epochal import durable
from epochal.records.layout.attempts import read_attempts
from epochal.text.formatting import format_value

_IGNORED_KEYS = ("seed", "tag", "desc", "log", "record", "checkpoint")
"""Keys, also as sections, that name, watch or keep a run and do not decide what it computes."""

_SEED = "${seed}"
_DIGITS = 16
_NORMAL_QUANTILE = 1.959963984540054
"""What leaves 2.5 % of a normal distribution above it."""

_ASYMPTOTIC_FREEDOM = 200
"""Degrees of freedom from which on a series gives Student's distribution to nine digits."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class MeanEstimate:
    """The mean of a few runs with its 95 % confidence interval; NaN where nothing can be said."""

    mean: float
    low: float
    """Where the interval begins; NaN for a single run, as ``high`` and ``spread``."""

    high: float
    count: int
    spread: float
    """The standard deviation of the runs, as a sample."""

    @property
    def half(self) -> float:
        """Half the width of the interval: what stands after the sign ±."""
        return self.high - self.mean

    @override
    def __str__(self) -> str:
        """The mean and how far its interval reaches: ``0.9412 ± 0.013``."""
        reach = "" if math.isnan(self.half) else f" ± {self.half:.2g}"
        return f"{format_value(self.mean)}{reach}"


def replicate_key(run: Mapping[str, Any], provenance: Mapping[str, Any]) -> str:
    """A digest that runs share which differ only by seed; empty when the config is lost.

    Names, purpose, logging, and where things are kept do not count. The project's code that was
    imported does, as do the versions of Epochal and torch, and what changed when a run went on.

    Args:
        run: What ``run.json`` holds.
        provenance: What ``config/provenance.json`` holds; it knows every value.
    """
    values = {
        key: value
        for key, origins in provenance.items()
        if not _is_ignored_key(key) and (value := _value(origins)) is not _LOST
    }
    if not values:
        return ""
    attempts = read_attempts(run)
    codes = {_digest(sorted(one.code.items())) for one in attempts if one.code}
    changes = {text for one in attempts for text in one.overrides if not _is_ignored_key(text)}
    facts = {name: run.get(name) for name in ("project", "runner", "epochal", "torch")}
    return _digest([sorted(values.items()), facts, sorted(codes), sorted(changes)])


def latest_per_seed(seeds: Sequence[object]) -> list[int]:
    """The places of the runs that count: of those with one seed, which say the same, the last."""
    return sorted({repr(seed): place for place, seed in enumerate(seeds)}.values())


def estimate_mean(values: Iterable[float]) -> MeanEstimate:
    """The mean of independent values, with the 95 % interval of Student's distribution."""
    known = [float(value) for value in values]
    count = len(known)
    if not count or not all(map(math.isfinite, known)):
        mean = sum(known) / count if count else math.nan
        return MeanEstimate(mean=mean, low=math.nan, high=math.nan, count=count, spread=math.nan)
    mean = math.fsum(value / count for value in known)
    if count == 1:
        return MeanEstimate(mean=mean, low=math.nan, high=math.nan, count=1, spread=math.nan)
    largest = max(abs(value - mean) for value in known) or 1.0  # squares must not overflow
    squares = math.fsum(((value - mean) / largest) ** 2 for value in known)
    spread = largest * math.sqrt(squares / (count - 1))
    half = t_critical_value(count - 1) * spread / math.sqrt(count)
    return MeanEstimate(mean=mean, low=mean - half, high=mean + half, count=count, spread=spread)


@lru_cache(maxsize=256)
def t_critical_value(freedom: int) -> float:
    """How many standard errors a 95 % interval reaches to each side of a mean.

    Args:
        freedom: Degrees of freedom: one less than there are values.
    """
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


_LOST = object()


def _value(origins: object) -> object:
    """The value in force; as written, where the seed decides it; a whole float as an integer."""
    newest = origins[0] if isinstance(origins, list) and origins else None
    if not isinstance(newest, Mapping) or "value" not in newest:  # the file may be damaged
        return _LOST
    text, value = newest.get("text"), newest["value"]
    if isinstance(text, str) and _SEED in text:
        return text
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_ignored_key(key: str) -> bool:
    return key.partition("=")[0].partition(".")[0] in _IGNORED_KEYS


def _digest(value: object) -> str:
    return hashlib.sha256(durable.encode_json(value)).hexdigest()[:_DIGITS]
