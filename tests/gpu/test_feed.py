"""Copying batches to a CUDA device; skipped without one."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

import epochal as ep
from epochal.engine.device.move import BatchMover, choose_mover
from epochal.engine.feed.feed import Feed
from epochal.engine.feed.sampling_order import DataPass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = torch.device("cuda")
LENGTH = 1000


class Holder:
    def __init__(self, loader: object) -> None:
        self.train_loader = loader


def feed(loader: object, dtype: torch.dtype | None = None, **options: Any) -> Feed:
    move = choose_mover(CUDA, dtype, **options)
    return Feed(Holder(loader), seed=3, accumulate=1, limit=None, move=move)


@contextmanager
def no_syncs() -> Iterator[None]:
    """Make every wait of the host for the device an error."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


class Squares(Dataset[dict[str, Any]]):
    """Samples of several kinds, made one by one."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.full((16, 8), float(index)), "pair": (index, torch.tensor(index))}


def images() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(LENGTH, 3, 8, 8, generator=generator)


def pieces(values: Tensor) -> list[Tensor]:
    return [values[i : i + 7] for i in range(0, LENGTH, 7)]


SOURCES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "TensorDataset": lambda x, y: DataLoader(TensorDataset(x, y), 32, shuffle=True),
    "in order": lambda x, y: DataLoader(TensorDataset(x, y), 32),
    "Tensors": lambda x, y: ep.data.Tensors(x=x, y=y).loader(shuffle=True),
    "sent": lambda x, y: ep.data.Tensors(x=x, y=y, resident=False).loader(shuffle=True),
    "resident": lambda x, y: ep.data.Tensors(x=x, y=y, resident=True).loader(shuffle=True),
    "resident in order": lambda x, y: ep.data.Tensors(x=x, y=y, resident=True).loader(),
    "on the device": lambda x, y: ep.data.Tensors(x.cuda(), y.cuda()).loader(shuffle=True),
    "samples": lambda x, y: DataLoader(Squares(), 32, shuffle=True),
    "workers": lambda x, y: DataLoader(Squares(), 32, num_workers=2, pin_memory=True),
    "a list": lambda x, y: [*zip(pieces(x), pieces(y), repeat("text"))],
    "strided": lambda x, y: pieces(x.transpose(1, 2)),
}


def source(kind: str) -> Any:
    return SOURCES[kind](images(), torch.arange(LENGTH))


def flat(batch: Any) -> list[Any]:
    if isinstance(batch, dict):
        batch = list(batch.values())
    return (
        [part for item in batch for part in flat(item)]
        if isinstance(batch, list | tuple)
        else [batch]
    )


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_batches_equal_those_of_plain_copies(kind: str, dtype: torch.dtype | None) -> None:
    loader = source(kind)
    plain, move = Feed(Holder(loader), seed=3, accumulate=1, limit=None), BatchMover(CUDA, dtype)
    expected = [[move(part) for part in flat(step)] for step in plain.epoch(0)]
    given = [flat(step) for step in feed(loader, dtype).epoch(0)]
    assert len(given) == len(expected)
    for one, other in zip(given, expected, strict=True):
        for left, right in zip(one, other, strict=True):
            if isinstance(right, Tensor):
                assert (left.device, left.dtype) == (right.device, right.dtype)
                assert torch.equal(left, right)
            else:
                assert left == right


@pytest.mark.parametrize("kind", [kind for kind in SOURCES if kind != "strided"])
def test_copying_a_batch_does_not_block(kind: str) -> None:
    one = feed(source(kind))
    weights = torch.randn(64, 64, device=CUDA)
    for _ in one.epoch(0):  # memory and kernels are ready after this
        weights = weights @ weights / 64
    steps = iter(one.epoch(1))
    next(steps)  # small data are copied to the device as a whole before
    with no_syncs():
        for _ in steps:
            weights = weights @ weights / 64


class Rows:
    """A batch of a class of its own that counts its moves."""

    def __init__(self, values: Tensor, moves: int = 0) -> None:
        self.values, self.moves = values, moves

    def to(self, device: torch.device) -> Rows:
        return Rows(self.values.to(device), self.moves + 1)


def test_an_object_that_the_feed_moved_is_not_moved_again() -> None:
    source = feed([Rows(torch.ones(2)) for _ in range(3)])
    for (batch,) in source.epoch(0):
        assert source.move(batch) is batch
        assert (batch.moves, batch.values.device.type) == (1, "cuda")
        assert source.move(Rows(torch.ones(2))).moves == 1


def test_images_come_with_channels_last() -> None:
    loader = ep.data.Tensors(images(), torch.arange(LENGTH)).loader(batch_size=8)
    move = choose_mover(CUDA, None, channels_last=True)
    for (batch,) in feed(loader, channels_last=True).epoch(0):
        assert batch[0].is_contiguous(memory_format=torch.channels_last)
        assert move(batch)[0].data_ptr() == batch[0].data_ptr()


@pytest.mark.parametrize("kind", ["TensorDataset", "Tensors", "resident", "samples", "a list"])
def test_memory_of_a_batch_is_not_overwritten_while_it_is_used(kind: str) -> None:
    """Slow work on each batch while many batches are queued gives the sums of the CPU."""
    loader = source(kind)
    slow = torch.randn(1500, 1500, device=CUDA)
    expected = [
        [part.double().sum() for part in flat(step) if isinstance(part, Tensor)]
        for step in Feed(Holder(loader), seed=3, accumulate=1, limit=None).epoch(0)
    ]
    sums = []
    for step in feed(loader).epoch(0):
        for _ in range(3):
            slow = slow @ slow / 1500**0.5
        sums.append([part.double().sum() for part in flat(step) if isinstance(part, Tensor)])
        del step
    for one, other in zip(sums, expected, strict=True):
        assert torch.stack(one).cpu().tolist() == pytest.approx(torch.stack(other).tolist())


def test_loader_may_reuse_its_host_memory() -> None:
    class Reused:
        """Reuses one tensor for every batch, as some loaders do."""

        def __iter__(self) -> Iterator[Tensor]:
            buffer = torch.empty(1000)
            for number in range(50):
                yield buffer.fill_(number)

    slow = torch.randn(1500, 1500, device=CUDA)
    means = []
    for (batch,) in feed(Reused()).epoch(0):
        slow = slow @ slow / 1500**0.5
        means.append(batch.max())
    assert torch.stack(means).tolist() == list(range(50))


def test_evaluation_between_steps_does_not_change_the_training() -> None:
    loader = source("Tensors")
    val = ep.data.Tensors(images()).loader(batch_size=64)
    expected = [step[0]["y"].tolist() for step in feed(loader).epoch(0)]
    one, given = feed(loader), []
    for step in one.epoch(0):
        given.append(step[0]["y"])
        seen = torch.cat([batch[0] for batch in one.open(val, 3, DataPass(0))])
        assert torch.equal(seen.cpu(), images()[: 3 * 64])
    assert [labels.tolist() for labels in given] == expected


class Convolve(ep.Task):
    def __init__(self, *, resident: bool) -> None:
        label = torch.arange(LENGTH) % 10
        data = ep.data.Tensors(image=images(), label=label, resident=resident)
        self.train_loader = data.loader(batch_size=50, shuffle=True)
        self.val_loader = data.loader(batch_size=50)

    def batch_forward(self, model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"logits": model(batch["image"])}

    def batch_loss(self, out: dict[str, Tensor], batch: dict[str, Tensor]) -> dict[str, Any]:
        loss = functional.cross_entropy(out["logits"], batch["label"])
        return {"loss": (loss, len(batch["label"]))}


def train(device: str, *, resident: bool = False, **engine: object) -> dict[str, float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
    result = ep.Experiment(
        task=Convolve(resident=resident),
        model=model,
        optim={"type": "SGD", "lr": 0.01},
        train={"for": "3ep", "eval_loss": True},
        engine=engine,
        choices={"device": device, "no_file": True},
    ).fit()
    assert result.ok, result.traceback
    return result.metrics


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("channels_last", [True, False])
def test_run_ends_like_one_on_the_cpu(resident: bool, channels_last: bool) -> None:
    on_cuda = train("cuda", resident=resident, channels_last=channels_last)
    assert on_cuda == pytest.approx(train("cpu", resident=resident), rel=1e-3)


def test_resident_data_give_the_same_bits() -> None:
    kept, sent = (train("cuda", resident=flag, deterministic=True) for flag in (True, False))
    assert kept == sent


def test_resident_data_leave_the_device_with_the_run() -> None:
    train("cuda", resident=True)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    train("cuda", resident=True)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before
