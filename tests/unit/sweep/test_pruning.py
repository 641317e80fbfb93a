"""When a trial is stopped early."""

from __future__ import annotations

import math
import random

from typing_extensions import override

from epochal.sweep.pruning import EndedCurves, Pruner

NAN = math.nan


def test_asha_keeps_the_best_third_at_each_rung() -> None:
    pruner = Pruner("asha", min_evaluations=1, factor=3)
    others = {1: [0.5], 2: [0.6]}
    cases = [
        ([0.4], others, ""),
        ([0.7], others, "asha: rank 3 of 3 at evaluation 1"),
        ([0.5], others, ""),  # a tie continues
        ([0.7], {1: [0.5]}, ""),  # too few to judge
        ([NAN], others, "asha: rank 3 of 3 at evaluation 1"),
        ([0.4, 0.9], others, ""),  # its best value so far counts
        ([0.4, 0.9, 0.8], {1: [0.5] * 3, 2: [0.3] * 3}, "asha: rank 2 of 3 at evaluation 3"),
        ([], others, ""),
    ]
    for curve, rest, expected in cases:
        assert pruner.find_reason(curve, rest, number=0, mode="min") == expected, curve
    assert pruner.find_reason([0.4], others, number=0, mode="max").startswith("asha: rank 3")


def test_hyperband_compares_only_trials_of_the_same_bracket() -> None:
    pruner = Pruner("hyperband", min_evaluations=1, factor=3, brackets=2)
    curves = {0: [0.1], 2: [0.2], 4: [0.3]}
    assert pruner.find_reason([0.9], curves, number=6, mode="min")
    assert not pruner.find_reason([0.9], curves, number=7, mode="min")
    long = {1: [0.1] * 3, 3: [0.2] * 3}
    assert pruner.find_reason([0.9] * 3, long, number=5, mode="min").endswith("at evaluation 3")


def test_median_and_percentile_wait_for_enough_trials() -> None:
    others = {n: [n / 10, n / 10] for n in range(1, 6)}  # 0.1 to 0.5
    cases = [
        (Pruner("median"), [0.31], "worse than the median of 5 trials at evaluation 1"),
        (Pruner("median"), [0.3], ""),
        (Pruner("median", min_evaluations=3), [0.9, 0.9], ""),
        (Pruner("median", min_trials=6), [0.9], ""),
        (Pruner("percentile", percentile=25), [0.21], "worse than the best 25 % of 5 trials"),
        (Pruner("percentile", percentile=25), [0.2], ""),
        (Pruner("percentile", percentile=100), [0.5], ""),
        (Pruner("median"), [NAN], "worse than the median"),
        (Pruner("median"), [0.9, 0.2], ""),
    ]
    for pruner, curve, expected in cases:
        found = pruner.find_reason(curve, others, number=9, mode="min")
        assert expected in found if expected else not found, (pruner, curve, found)


def test_ended_trials_count_like_running_ones() -> None:
    generator = random.Random(0)
    for kind in ("asha", "hyperband", "median", "percentile"):
        pruner = Pruner(kind, percentile=30.0)
        curves = {
            n: [generator.choice((NAN, round(generator.random(), 1))) for _ in range(n % 11)]
            for n in range(60)
        }
        ended = EndedCurves()
        reasons = set()
        for number, curve in curves.items():
            earlier = {n: one for n, one in curves.items() if n < number}
            running = {n: one for n, one in earlier.items() if n >= number - 3}
            if number > 3:
                ended.add(number - 4, curves[number - 4])
            for mode in ("min", "max"):
                about = {"number": number, "mode": mode}
                expected = pruner.find_reason(curve, earlier, **about)
                found = pruner.find_reason(curve, running, **about, ended=ended)
                assert found == expected, (kind, number, mode)
                reasons.add(found)
        assert len(reasons) > 5, kind


def test_the_values_of_an_ended_trial_are_compared_once() -> None:
    class CountingCurve(list[float]):
        num_reads = 0

        @override
        def __getitem__(self, place):
            self.num_reads += 1
            return super().__getitem__(place)

    for kind in ("asha", "median"):
        ended, curve = EndedCurves(), CountingCurve([0.5, 0.4, 0.3])
        ended.add(0, curve)
        for number in range(1, 5):
            Pruner(kind).find_reason([0.9], {}, number=number, mode="min", ended=ended)
        assert curve.num_reads == 1, kind
