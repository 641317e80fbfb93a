"""What each pipe gives, and which pipes cannot follow each other."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import epochal as ep
from epochal.data.batching import PadCollate
from epochal.engine.feed.feed import iter_batches
from epochal.engine.feed.sampling_order import DataPass
from epochal.errors import ConfigError, DataError, EpochalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

data = ep.data
NUMBERS = list(range(10))


def is_even(number: int) -> bool:
    return number % 2 == 0


def double(number: int, by: int = 2) -> int:
    return number * by


def twice(number: int) -> list[int]:
    return [number, number]


def windows(items: Iterator[int], size: int = 4) -> Iterator[list[int]]:
    window: list[int] = []
    for item in items:
        window = [*window, item][-size:]
        if len(window) == size:
            yield window


class Shift:
    """A small class of a user."""

    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, number: int) -> int:
        return number + self.by


class Adjacent:
    """A class whose method reads the whole stream."""

    def stream(self, items: Iterator[int]) -> Iterator[tuple[int, int]]:
        before = next(items)
        for item in items:
            yield before, item
            before = item


def test_pipes_give_what_their_names_say() -> None:
    stream = data.Filter(is_even)
    table: dict[str, tuple[list[Any], list[Any]]] = {
        "map": ([double], [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]),
        "map with options": ([data.Map(double, {"by": 3}), data.Take(2)], [0, 3]),
        "class": ([Shift(5), data.Take(2)], [5, 6]),
        "class with stream": ([data.Take(3), Adjacent()], [(0, 1), (1, 2)]),
        "generator": ([data.Take(5), windows], [[0, 1, 2, 3], [1, 2, 3, 4]]),
        "filter": ([stream], [0, 2, 4, 6, 8]),
        "flat_map": ([data.Take(2), data.FlatMap(twice)], [0, 0, 1, 1]),
        "slice": ([data.Slice(1, 8, 3)], [1, 4, 7]),
        "slice of a stream": ([stream, data.Slice(1, 4, 2)], [2, 6]),
        "take of a stream": ([stream, data.Take(2)], [0, 2]),
        "skip": ([data.Skip(8)], [8, 9]),
        "skip of a stream": ([stream, data.Skip(4)], [8]),
        "repeat": ([data.Take(2), data.Repeat(2)], [0, 1, 0, 1]),
        "repeat of a stream": ([stream, data.Take(2), data.Repeat(2)], [0, 2, 0, 2]),
        "endless repeat": ([data.Take(2), data.Repeat(), data.Take(3)], [0, 1, 0]),
        "sample": ([data.Sample([0] * 9 + [1], 3)], [9, 9, 9]),
        "batch": ([data.Take(5), data.Batch(2, collate="list")], [[0, 1], [2, 3], [4]]),
        "full batches": (
            [data.Take(5), data.Batch(2, drop_last=True, collate="list")],
            [[0, 1], [2, 3]],
        ),
        "full batches of a stream": (
            [stream, data.Batch(2, drop_last=True, collate="list")],
            [[0, 2], [4, 6]],
        ),
        "cache": ([data.Cache(), data.Take(2)], [0, 1]),
        "materialise": ([stream, data.Materialise(), data.Slice(1, 3)], [2, 4]),
    }
    for name, (pipes, expected) in table.items():
        chain = data.chain(NUMBERS, *pipes)
        assert list(chain) == expected, name
        if chain.is_indexed:
            assert [chain[index] for index in range(len(chain))] == expected, name


def test_batches_are_tensors_by_default() -> None:
    (batch,) = data.chain([{"x": np.ones(2), "y": 1}, {"x": np.zeros(2), "y": 2}], data.Batch(2))
    assert batch["x"].shape == (2, 2)
    assert batch["y"].tolist() == [1, 2]


def test_sequences_are_bucketed_packed_and_padded() -> None:
    texts = [{"tokens": np.arange(1, 1 + length)} for length in (5, 1, 4, 2, 3, 6)]
    batches = list(data.chain(texts, data.BucketByLength(2, "tokens")))
    assert sorted(tuple(batch["tokens"].shape) for batch in batches) == [(2, 2), (2, 4), (2, 6)]
    batches = list(data.chain(texts, data.BucketByLength(9, "tokens", max_tokens=8)))
    assert all(batch["tokens"].numel() <= 8 for batch in batches)
    blocks = list(data.chain(texts, data.Pack(4, "tokens", separator=0)))
    joined = np.concatenate([block["tokens"] for block in blocks])
    assert [len(block["tokens"]) for block in blocks] == [4] * 6
    assert joined[:8].tolist() == [1, 2, 3, 4, 5, 0, 1, 0]
    assert blocks[1]["segments"].tolist() == [0, 0, 1, 1]
    pad = data.Pad(value=-1, multiple=4, mask="mask")
    (batch,) = data.chain(texts, data.Take(2), data.Batch(2, collate="list"), pad)
    assert batch["tokens"].shape == (2, 8)
    assert batch["tokens"][1].tolist() == [1, *[-1] * 7]
    assert batch["mask"].sum(1).tolist() == [5, 1]
    (sample,) = data.chain(texts, data.Take(1), data.Pad(length=7))
    assert sample["tokens"].tolist() == [1, 2, 3, 4, 5, 0, 0]
    with pytest.raises(DataError, match="5 values, more than length 4"):
        list(data.chain(texts, data.Pad(length=4)))


def test_samples_that_are_no_sequences_are_neither_bucketed_nor_packed() -> None:
    for samples, key, message in (
        ([1, 2], None, "1, a int, is not a sequence of values\n  make a list"),
        ([np.float32(1)], None, "a float32, is not a sequence"),
        ([{"x": 1, "y": [1]}], "x", "1, a int, is not a sequence of values\n  set key to an entry"),
        ([{"x": 1, "y": [1]}], None, "a dict, is not a .*; a sample has 'x', 'y'"),
    ):
        for pipe in (data.BucketByLength(2, key), data.Pack(2, key)):
            with pytest.raises(DataError, match=f"(?s)(bucket_by_length|pack): .*{message}"):
                list(data.chain(samples, pipe))
    with pytest.raises(DataError, match="pack: 'spam', a str, is not a sequence of values"):
        list(data.chain(["spam"], data.Pack(2)))


def test_a_sample_longer_than_max_tokens_is_refused() -> None:
    samples = [[1] * length for length in (2, 9, 3)]
    with pytest.raises(DataError, match="a sample has 9 values, more than max_tokens 8\n  set a"):
        list(data.chain(samples, data.BucketByLength(4, max_tokens=8)))


def test_padding_keeps_texts_and_fills_samples_without_values() -> None:
    samples = [{"t": [], "name": "a"}, {"t": [3, 4], "name": "b"}]
    for order in (samples, samples[::-1]):
        collate = PadCollate(mask="mask")
        (batch,) = data.chain(order, data.Batch(2, collate=collate))
        assert batch["t"].dtype == torch.int64
        rows = dict(zip(batch["name"], batch["t"].tolist(), strict=True))
        assert rows == {"a": [0, 0], "b": [3, 4]}
        assert sorted(batch["mask"].sum(1).tolist()) == [0, 2]
    (sample,) = data.chain(samples[1:], data.Pad(length=3))
    assert sample["t"].tolist() == [3, 4, 0]
    assert sample["name"] == "b"


def test_chains_are_mixed_by_weight() -> None:
    ones, twos = data.chain([1] * 300, data.Shuffle()), [[[2] * 300]]
    mixed = list(data.chain(data.Mix([ones, *twos], weights=[3, 1])))
    assert 0.6 < mixed.count(1) / len(mixed) < 0.9
    chain = data.chain(data.Mix([[list(range(50))], [list(range(100, 150))]]))
    assert list(chain.items(start=7)) == list(chain)[7:]
    with pytest.raises(DataError, match="3 weights for 2 chains"):
        data.Mix([[[1]], [[2]]], weights=[1, 2, 3])
    for weights in ([1, -1], [0, 0], [float("nan"), 1], [float("inf"), 1]):
        with pytest.raises(DataError, match="one is negative or not finite, or none is above 0"):
            data.Mix([[[1]], [[2]]], weights=weights)
    with pytest.raises(DataError, match="0 weights for 0 chains"):
        data.Mix([])


def test_a_cached_sample_stays_the_same_in_every_epoch() -> None:
    chain = data.chain(NUMBERS, Noise(), data.Cache(), data.Batch(5, collate="list"))
    loader = chain.loader()
    first, second = (list(loader.open_pass(DataPass(seed))) for seed in (1, 2))
    assert first == second
    assert list(chain.loader().open_pass(DataPass(2))) == second  # it may be read later, too


class Noise:
    def __call__(self, number: int) -> tuple[int, float]:
        return number, random.random()


def test_a_cache_on_disk_is_found_again_until_something_before_it_changes(tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text("1\n2\n")

    def build(function: Any) -> Any:
        return data.chain(data.Text(str(source)), function, data.Cache(str(tmp_path / "kept")))

    assert list(build(as_array))[1]["x"].tolist() == [2]
    assert next(iter(build(as_array)))["text"] == "1"
    assert len(list((tmp_path / "kept").iterdir())) == 1
    source.write_text("1\n2\n3\n")
    assert len(list(build(as_array))) == 3
    assert len(list(build(str.upper))) == 3
    assert len(list((tmp_path / "kept").iterdir())) == 3
    with pytest.raises(DataError, match=r"cannot keep a Shift in a file"):
        list(build(as_object))


def as_array(text: str) -> dict[str, Any]:
    return {"x": np.array([int(text)]), "text": text}


def as_object(text: str) -> Shift:
    return Shift(int(text))


def test_any_object_with_items_can_start_a_chain() -> None:
    class Countdown:
        def __iter__(self) -> Iterator[int]:
            return iter((3, 2, 1))

    def numbers() -> Iterator[int]:
        yield from (1, 2)

    assert list(data.chain(Countdown())) == [3, 2, 1]
    assert list(data.chain(numbers, double)) == [2, 4]
    assert [x.item() for (x,) in data.chain(TensorDataset(torch.arange(3)))] == [0, 1, 2]
    for value, message in ((iter([1]), "can be read only once"), (3, "a int has no items")):
        with pytest.raises(DataError, match=message):
            data.chain(value)


def test_pipes_that_do_not_fit_are_refused() -> None:
    stream, batch = data.Filter(is_even), data.Batch(2)
    table = [
        ([], "has no pipes"),
        ([data.Shuffle()], "1, Shuffle, is no source"),
        ([NUMBERS, data.Items([1])], "2, Items, is a source, but not the first"),
        ([NUMBERS, stream, data.Shuffle()], "needs an index, and Filter gives a stream"),
        ([NUMBERS, batch, batch], "4|3, Batch, makes batches of batches"),
        ([NUMBERS, data.SplitByWorker(), data.SplitByWorker()], "splits what is split already"),
        ([NUMBERS, data.SplitByWorker(), data.Cache()], "keeps the items of all parts"),
        ([NUMBERS, data.Shuffle], "Shuffle is a class, not an object"),
        ([NUMBERS, 3], "a int is no pipe"),
    ]
    for pipes, message in table:
        with pytest.raises(DataError, match=message):
            data.chain(*pipes)


def test_arguments_in_python_are_checked_as_those_in_a_config() -> None:
    dicts = [{"text": "ab"}] * 3
    table: list[tuple[Callable[[], object], str]] = [
        (lambda: data.Batch(0), "^Batch.size: must be at least 1, got 0"),
        (lambda: data.Take(count=-1), "^Take.count: must be at least 0"),
        (lambda: data.Sample([0.0, 0.0]), "none is above 0"),
        (lambda: data.Sample([1.0, -1.0]), "a weight is negative"),
        (
            lambda: data.Batch(2, collate="pda"),
            "^collate: unknown name 'pda'\n  did you mean 'pad'",
        ),
        (
            lambda: list(data.chain(dicts, data.BucketByLength(2, key="tokens"))),
            "^bucket_by_length: a sample, a dict, has no 'tokens', it has only 'text'",
        ),
        (
            lambda: list(data.chain([5], data.Pack(2, key="tokens"))),
            "^pack: a sample, a int, has no 'tokens', it has no keys",
        ),
    ]
    for call, message in table:
        with pytest.raises(EpochalError, match=message):
            call()


def test_options_that_contradict_the_pipes_are_refused() -> None:
    stream = data.chain(NUMBERS, data.Filter(is_even))
    batched = data.chain(NUMBERS, data.Batch(2))
    table = [
        (stream, {"shuffle": True}, "gives a stream, which has no index to shuffle"),
        (stream, {"workers": 2}, "2 workers would each read the whole stream"),
        (batched, {"shuffle": True}, "the pipes make batches already"),
        (batched, {"collate": "pad"}, "the pipes make batches already"),
    ]
    for chain, options, message in table:
        with pytest.raises(ConfigError, match=message):
            chain.loader(**options)
    with pytest.raises(DataError, match="the chain has no items"):
        data.chain([]).loader()


def test_what_cannot_be_sent_to_a_worker_is_named() -> None:
    class Held:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __call__(self, item: int) -> int:
            return item

    table = {
        r"pipes.1: Map.function.*lambda": lambda item: item,
        r"pipes.1: Map.function.lock cannot be sent": Held(),
    }
    for message, pipe in table.items():
        chain = data.chain(NUMBERS, pipe)
        assert len(list(chain.loader(batch_size=5))) == 2
        with pytest.raises(DataError, match=message):
            chain.loader(workers=1)


def test_the_number_of_workers_fits_the_parts(caplog: pytest.LogCaptureFixture) -> None:
    chain = data.chain(NUMBERS, data.SplitByWorker(8), data.Filter(is_even))
    with caplog.at_level("INFO"):
        assert chain.loader(workers=7).num_workers == 4
    assert "uses 4 of 7 workers, because split_by_worker makes 8 parts" in caplog.text
    assert data.chain(NUMBERS).loader(workers=7).num_workers == 7


def test_a_loader_shuffles_training_data_unless_the_pipes_have_an_order() -> None:
    from epochal.data.loader import LoaderOptions, build_chain_loader

    def order(*pipes: Any, **options: Any) -> list[Any]:
        chain = data.chain(NUMBERS, *pipes)
        loader = build_chain_loader(chain, LoaderOptions(**options), split="train", device="cpu")
        return [type(pipe).__name__ for pipe in loader.chain.pipes[1:]]

    assert order() == ["Shuffle", "Batch"]
    assert order(shuffle=False, repeat=2) == ["Repeat", "Batch"]
    assert order(data.ShuffleBuffer(3)) == ["ShuffleBuffer", "Batch"]
    assert order(data.Batch(2)) == ["Batch"]
    assert order(batch_size=None) == ["Shuffle"]


def test_an_error_in_a_pipe_comes_after_the_items_before_it() -> None:
    items = iter(data.chain([1, 2, 0, 4], invert))
    assert [next(items), next(items)] == [1, 0.5]
    with pytest.raises(ZeroDivisionError):
        next(items)


def invert(number: int) -> float:
    return 1 / number


def test_an_error_names_the_item_and_the_pipe() -> None:
    table = {
        "item 2 of pipe 2, Map": [invert],
        "item 2 of pipe 3, Map": [double, invert],
        "item 2 of pipe 4, Map": [double, double, invert, data.Batch(2)],
        "item 2 of pipe 5, Map": [
            *(double, double, double, invert),
            *(data.Slice(1, 4), data.Shuffle(), data.Batch(3)),
        ],
        "item 2 of pipe 3, Filter": [noisy, data.Filter(invert_noisy)],
    }
    for note, pipes in table.items():
        with pytest.raises(ZeroDivisionError) as caught:
            list(data.chain([1, 2, 0, 4], *pipes))
        assert caught.value.__notes__ == [f"data: while reading {note}"], note


def noisy(number: int) -> tuple[int, float]:
    return number, random.random()


def invert_noisy(item: tuple[int, float]) -> float:
    return 1 / item[0]


def test_data_without_end_are_known() -> None:
    endless = data.chain(NUMBERS, data.Repeat())
    assert endless.is_endless
    assert not endless.then(data.Take(3)).is_endless
    assert data.chain(NUMBERS, data.Take(3), data.Repeat()).is_endless
    assert not data.chain(NUMBERS, data.Repeat(2)).is_endless


def test_an_evaluation_of_endless_data_is_limited_or_refused() -> None:
    loader = data.chain(NUMBERS, data.Repeat()).loader(batch_size=2)
    with pytest.raises(DataError, match=r"val_loader: its data never end\n.*limit_eval_batches"):
        list(iter_batches(loader, "val_loader", None))
    assert len(list(iter_batches(loader, "val_loader", 3))) == 3
