"""One fresh process of the benchmark: pairs of segments, or one start.

``pairs`` repeatedly trains a segment with the peer and with the hand-written loop, and records the
time of both. ``start`` trains once, and records the time until the first step.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import resource
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from turns import Side, train_in_turns
from work import WORKS, Job, Opaque, draw_data, make_job, outcome

if TYPE_CHECKING:
    from collections.abc import Callable

HAND = "hand_written"
WARM_UP_STEPS = 20
START_STEPS = 10


class Segments:
    """Trains segments of one case and model, from the same weights each time."""

    def __init__(self, model: str, case: str, *, opaque: bool, steps: int | None = None) -> None:
        self.work, self.case = WORKS[model], case
        data = draw_data(self.work, case, steps=steps)
        self.data = tuple(Opaque(part) for part in data) if opaque else data

    def train(self, train: Callable[[Job], None]) -> dict[str, float]:
        """Train once; time per step, loss and norm."""
        with tempfile.TemporaryDirectory() as folder:
            job = self._make_job(folder)
            gc.collect()  # the garbage of one side must not cost the other one time
            train(job)
        stamps = zip(*job.model.watch.stamps, strict=True)
        return _figures(job, *(end - begin for begin, end in stamps))

    def train_pair(
        self, theirs: Callable[[Job], None], ours: Callable[[Job], None], *, ours_first: bool
    ) -> dict[str, dict[str, float]]:
        """The figures of two trainings, one after the other or alternating step by step."""
        sides = {"peer": theirs, "hand": ours}
        if not self.work.in_turns:
            order = sorted(sides, reverse=not ours_first)
            return {side: self.train(sides[side]) for side in order}
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            jobs = [self._make_job(folder) for folder in (one, other)]
            for job in jobs:
                job.model.watch = Side(job.model.watch.marks)
            gc.collect()
            train_in_turns(
                *(
                    (job.model.watch, partial(train, job))
                    for job, train in zip(jobs, sides.values(), strict=True)
                )
            )
        return {
            side: _figures(job, job.model.watch.wall, job.model.watch.cpu)
            for side, job in zip(sides, jobs, strict=True)
        }

    def _make_job(self, folder: str) -> Job:
        return make_job(self.work, self.case, self.data, Path(folder))


def _figures(job: Job, wall: float = 0.0, cpu: float = 0.0) -> dict[str, float]:
    """The figures of a segment: time per step, loss and norm."""
    if job.model.watch.count != job.passes:
        raise RuntimeError(f"{job.model.watch.count} forward passes instead of {job.passes}")
    loss, norm = outcome(job)
    return {"wall": wall / job.steps, "cpu": cpu / job.steps, "loss": loss, "norm": norm}


def find(peer: str, case: str) -> Callable[[Job], None]:
    """The function of a peer that trains a case."""
    found: Callable[[Job], None] = getattr(
        importlib.import_module(f"peers.{peer}"), case.replace("-", "_")
    )
    return found


def measure_pairs(args: argparse.Namespace) -> dict[str, Any]:
    """Pairs of segments, the order alternating, after a short one of each."""
    theirs = find(args.peer, args.case)
    ours = find(HAND, "realistic" if args.case == "realistic" else "minimal")
    warm_up = Segments(args.model, args.case, opaque=args.opaque, steps=WARM_UP_STEPS)
    for train in (theirs, ours):
        warm_up.train(train)
    segments = Segments(args.model, args.case, opaque=args.opaque)
    pairs = [
        segments.train_pair(theirs, ours, ours_first=bool((index + args.round) % 2))
        for index in range(args.pairs)
    ]
    return {"pairs": pairs}


def measure_start(args: argparse.Namespace) -> dict[str, Any]:
    """Time of the import, from start of the process to the end of the first step, and memory."""
    begin = time.monotonic()
    theirs = find(args.peer, args.case)
    imported = time.monotonic()
    segments = Segments(args.model, args.case, opaque=False, steps=START_STEPS)
    first_steps: list[float] = []

    def train(job: Job) -> None:
        tick = job.model.watch.tick

        def note() -> None:
            first_steps.append(time.monotonic())
            tick()

        job.model.watch.tick = note
        theirs(job)

    segments.train(train)
    return {
        "import": imported - begin,
        "first_step": first_steps[1] - args.began,  # the second pass begins after the first step
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    """Measure what the arguments select, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("pairs", "start"))
    parser.add_argument("output", type=Path)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--case", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--opaque", action="store_true")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--round", type=int, default=0)
    parser.add_argument("--began", type=float, default=0.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    sys.argv = sys.argv[:1]  # some peers read the command line
    found = measure_pairs(args) if args.mode == "pairs" else measure_start(args)
    args.output.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
