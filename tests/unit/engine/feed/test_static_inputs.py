"""Tests of where gathered batches go."""

from __future__ import annotations

import torch
from torch import Tensor

from epochal.engine.feed.static_inputs import StaticInputs

ROWS = torch.arange(20.0).reshape(10, 2)
LABELS = torch.arange(10)


def places(size: int) -> list[Tensor]:
    return [torch.zeros(size, 2), torch.zeros(size, dtype=torch.int64)]


def batches(static_inputs: StaticInputs, *columns: Tensor, size: int = 4) -> list[list[Tensor]]:
    """A pass over ten rows, the last one first: copies of each batch, and its first tensor."""
    order = torch.arange(9, -1, -1)
    chosen = []

    def select(indices: Tensor) -> list[Tensor]:
        return [column[indices] for column in columns]

    for batch in static_inputs.gather_batches(
        columns, list, order, torch.split(order, size), select
    ):
        chosen.append([part.clone() for part in batch])
        chosen[-1].append(batch[0])
    return chosen


def labels(found: list[list[Tensor]]) -> list[list[int]]:
    return [batch[1].tolist() for batch in found]


EXPECTED = [[9, 8, 7, 6], [5, 4, 3, 2], [1, 0]]


def test_without_a_place_all_batches_are_new() -> None:
    found = batches(StaticInputs(), ROWS, LABELS)
    assert labels(found) == EXPECTED
    assert len({batch[2].data_ptr() for batch in found}) == 3


def test_batches_that_fit_go_into_the_place_and_the_others_do_not() -> None:
    static_inputs, targets = StaticInputs(), places(4)
    static_inputs.set_targets(targets)
    found = batches(static_inputs, ROWS, LABELS)
    assert labels(found) == EXPECTED
    assert [batch[2] is targets[0] for batch in found] == [True, True, False]
    assert all(torch.equal(batch[0], ROWS[batch[1]]) for batch in found)


def test_a_place_for_the_last_batch_is_for_that_one_only() -> None:
    static_inputs, targets = StaticInputs(), places(2)
    static_inputs.set_targets(targets)
    found = batches(static_inputs, ROWS, LABELS)
    assert labels(found) == EXPECTED
    assert [batch[2] is targets[0] for batch in found] == [False, False, True]


def test_a_place_of_another_kind_is_left_alone() -> None:
    static_inputs, targets = StaticInputs(), places(4)
    static_inputs.set_targets(targets)
    found = batches(static_inputs, ROWS.double(), LABELS)
    assert labels(found) == EXPECTED
    assert not any(batch[2] is targets[0] for batch in found)
    assert targets[0].count_nonzero() == 0


def test_a_place_that_is_taken_back_is_used_no_more() -> None:
    static_inputs, targets = StaticInputs(), places(4)
    static_inputs.set_targets(targets)
    static_inputs.set_targets([])
    found = batches(static_inputs, ROWS, LABELS)
    assert labels(found) == EXPECTED
    assert targets[0].count_nonzero() == 0
