"""Tests of shapes of batches that have no graph yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.parts import make_run
from epochal.engine.capture.batch_layout import CaptureCandidates, flatten_tensors

if TYPE_CHECKING:
    from collections.abc import Hashable

RUN = make_run()


def key_of(size: int) -> Hashable:
    return flatten_tensors((torch.zeros(size),), [])


def keep(shapes: CaptureCandidates, *sizes: int) -> None:
    for size in sizes:
        shapes.add(key_of(size), (torch.zeros(size),), RUN)


def count(shapes: CaptureCandidates, size: int) -> int:
    candidate = shapes.find(key_of(size))
    return 0 if candidate is None else len(candidate.batches)


def test_batches_are_copied() -> None:
    shapes, batch = CaptureCandidates(max_shapes=2), torch.zeros(3)
    shapes.add(key_of(3), (batch,), RUN)
    batch.fill_(1)  # a loader may fill the same memory again
    kept = shapes.pop(key_of(3)).batches
    assert torch.equal(kept[0][0], torch.zeros(3))
    assert shapes.find(key_of(3)) is None


def test_the_number_of_candidates_is_limited_and_all_shapes_are_counted() -> None:
    shapes = CaptureCandidates(max_shapes=2)
    keep(shapes, *range(1, 20))
    assert [count(shapes, size) for size in range(1, 5)] == [1, 1, 0, 0]
    assert len(shapes) == 19


def test_a_shape_that_comes_more_often_makes_one_that_does_not_go() -> None:
    shapes = CaptureCandidates(max_shapes=2)
    keep(shapes, 1, 2, 3, 2, 3)
    assert [count(shapes, size) for size in (1, 2, 3)] == [0, 2, 1]


def test_shapes_in_turn_do_not_push_each_other_out() -> None:
    shapes = CaptureCandidates(max_shapes=2)
    keep(shapes, *[1, 2, 3] * 3)
    assert [count(shapes, size) for size in (1, 2, 3)] == [3, 3, 0]


def test_a_refusal_holds_until_clear() -> None:
    shapes = CaptureCandidates(max_shapes=2)
    shapes.refuse(key_of(1))
    assert shapes.is_refused(key_of(1))
    assert not shapes.is_refused(key_of(2))
    shapes.clear()
    assert not shapes.is_refused(key_of(1))


def test_the_options_of_the_optimizer_are_those_of_the_first_step() -> None:
    shapes, group = CaptureCandidates(max_shapes=2), RUN.optimizer.param_groups[0]
    keep(shapes, 1)
    group["momentum"] = 0.5
    keep(shapes, 1)
    group["momentum"] = 0
    assert shapes.pop(key_of(1)).groups["optim.0.momentum"] == 0


def test_the_reason_names_a_constant_and_else_the_shapes() -> None:
    shapes = CaptureCandidates(max_shapes=2)
    keep(shapes, 1, 2)
    assert shapes.explain_differences() == "shapes of batches do not repeat"
    for number in range(2):
        batch = ({"x": torch.zeros(1), "index": number},)
        shapes.add(flatten_tensors(batch, []), batch, RUN)
    assert shapes.explain_differences().startswith("batch['index'] changes from batch to batch")


def test_counts_do_not_grow_for_ever() -> None:
    shapes = CaptureCandidates(max_shapes=1)
    keep(shapes, *range(1, 1200))
    assert len(shapes) < 1000
