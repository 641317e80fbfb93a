"""Any chain, read by any number of workers from any position, gives the same items in order."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import epochal as ep
from epochal.data.chain_loader import find_slot
from epochal.engine.feed.sampling_order import DataPass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.data.chain_loader import ChainLoader

data = ep.data


def add_noise(item: Any) -> Any:
    """Draws from each generator, a different number of times for each item."""
    noise = sum(random.random() for _ in range(1 + len(str(item)) % 3))
    return (item, round(noise, 6), float(np.random.rand()), float(torch.rand(())))


def is_kept(item: Any) -> bool:
    return len(str(item)) % 3 != 0


def is_kept_by_chance(item: Any) -> bool:
    return random.random() < 0.7


def copies(item: Any) -> list[Any]:
    return [(item, number) for number in range(len(str(item)) % 3)]


def pairs(items: Iterator[Any]) -> Iterator[Any]:
    for item in items:
        yield (item, next(items, None))


def mark(item: Any) -> Any:
    return [item]


ANYWHERE = {
    "map": lambda _: mark,
    "noisy map": lambda _: add_noise,
    "filter": lambda _: data.Filter(is_kept),
    "chance": lambda _: data.Filter(is_kept_by_chance),
    "flat_map": lambda _: data.FlatMap(copies),
    "generator": lambda _: pairs,
    "buffer": lambda n: data.ShuffleBuffer(2 + n),
    "slice": lambda n: data.Slice(n % 3, 30 + n, 1 + n % 2),
    "take": lambda n: data.Take(20 + n),
    "skip": lambda n: data.Skip(n % 4),
    "repeat": lambda n: data.Repeat(1 + n % 2),
    "materialise": lambda _: data.Materialise(),
}
INDEXED = {
    "shuffle": lambda _: data.Shuffle(),
    "cache": lambda _: data.Cache(),
}


@st.composite
def chains(draw: Any) -> Any:
    length = draw(st.integers(0, 30))
    names = draw(st.lists(st.sampled_from([*ANYWHERE, *INDEXED]), max_size=4))
    split_at = draw(st.integers(0, len(names)))
    parts = draw(st.sampled_from([1, 2, 4, 6]))
    has_batch = draw(st.booleans())
    number = draw(st.integers(1, 5))
    made = data.chain(list(range(length)))
    for place, name in enumerate([*names, None]):
        if place == split_at:
            made = made.then(data.SplitByWorker(parts))
        if name in ("cache", "materialise") and place >= split_at:
            continue  # refused behind a split
        if name in INDEXED and made.is_indexed:
            made = made.then(INDEXED[name](number))
        elif name in ANYWHERE:
            made = made.then(ANYWHERE[name](number))
    return made.then(data.Batch(number, collate="list")) if has_batch else made


def load(chain: Any) -> ChainLoader:
    from epochal.data.chain_loader import ChainLoader

    return ChainLoader(chain, batch_size=None)


def read(loader: ChainLoader, *, workers: int = 0, start: int = 0, seed: int = 3) -> list[Any]:
    """A pass; workers are copies in this process that get slots as torch deals them."""
    if workers:
        copies_of_data = [pickle.loads(pickle.dumps(loader.dataset)) for _ in range(workers)]

        def deal(slots: Iterator[Any]) -> Iterator[Any]:
            return (copies_of_data[n % workers][slot] for n, slot in zip(count(), slots))

        loader._read = deal  # type: ignore[method-assign]
    return list(loader.open_pass(DataPass(seed, 0, start)))


@settings(max_examples=120, deadline=None)
@given(chains(), st.integers(1, 5), st.integers(0, 12))
def test_neither_workers_nor_an_interruption_change_the_items(
    chain: Any, workers: int, start: int
) -> None:
    whole = read(load(chain))
    assert list(chain.items(seed=3)) == whole
    assert read(load(chain), workers=workers) == whole
    assert read(load(chain), start=start) == whole[start:]
    assert read(load(chain), workers=workers, start=start) == whole[start:]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 40),
    st.lists(st.sampled_from(["shuffle", "buffer", "split", "map"]), max_size=4),
    st.integers(1, 5),
)
def test_every_sample_comes_exactly_once(length: int, names: list[str], workers: int) -> None:
    made = data.chain(list(range(length)))
    for name in names:
        if name == "split" and not any(pipe.splits for pipe in made.pipes):
            made = made.then(data.SplitByWorker(4))
        elif name == "shuffle" and made.is_indexed:
            made = made.then(data.Shuffle())
        elif name in ("buffer", "map"):
            made = made.then(data.ShuffleBuffer(4) if name == "buffer" else abs)
    batches = read(load(made.then(data.Batch(3, collate="list"))), workers=workers)
    assert Counter(item for batch in batches for item in batch) == Counter(range(length))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=5))
def test_a_position_is_found_in_lanes_of_any_lengths(lengths: list[int]) -> None:
    lanes = len(lengths)
    order = [
        slot for slot in range(lanes * 7) if slot // lanes < lengths[slot % lanes]
    ]  # slots with a batch
    for position in range(len(order) + 1):
        found = find_slot(position, lanes, dict(enumerate(lengths)))
        assert [slot for slot in order if slot >= found] == order[position:]


def test_epochs_and_seeds_have_different_orders() -> None:
    for pipe in (data.Shuffle(), data.ShuffleBuffer(20), data.Sample([1.0] * 40)):
        loader = load(data.chain(list(range(40)), pipe))
        orders = {tuple(loader.open_pass(DataPass(seed))) for seed in range(3)}
        assert len(orders) == 3, type(pipe).__name__


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_real_workers_give_the_same_batches(workers: int) -> None:
    def make(number: int) -> ChainLoader:
        parts = data.SplitByWorker(6)
        chain = data.chain(list(range(40)), data.Shuffle(), parts, add_noise, data.Filter(is_kept))
        return chain.loader(batch_size=3, collate="list", workers=number, persistent_workers=True)

    whole = [list(make(0).open_pass(DataPass(seed, seed))) for seed in (1, 2)]
    loader = make(workers)
    assert [list(loader.open_pass(DataPass(seed, seed))) for seed in (1, 2)] == whole
    assert list(loader.open_pass(DataPass(1, 1, 5))) == whole[0][5:]


def test_ranks_share_the_samples() -> None:
    for stream in (False, True):
        make = partial(data.chain, list(range(11)), data.Shuffle())
        before = (data.ShuffleBuffer(3),) if stream else ()
        chain = make(*before, data.ShardByRank())
        chain.prepare()
        shares = [list(chain.last.iterate(data.Pass(7, rank=rank, world=3))) for rank in range(3)]
        assert sorted(item for share in shares for item in share) == list(range(11)), stream
        assert [len(share) for share in shares] == [4, 4, 3], stream


def test_ranks_of_any_launcher_share_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank_name, size_name in (
        ("RANK", "WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ):
        shares = []
        for rank in (0, 1):
            with monkeypatch.context() as patch:
                patch.setenv(rank_name, str(rank))
                patch.setenv(size_name, "2")
                loader = data.chain(list(range(9)), data.ShardByRank()).loader(
                    batch_size=1, collate="list"
                )
                shares.append([one for batch in loader.open_pass(DataPass(1)) for one in batch])
        assert shares == [[0, 2, 4, 6, 8], [1, 3, 5, 7]], rank_name
