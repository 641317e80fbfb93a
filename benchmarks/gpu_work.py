"""Shared by all contenders of the GPU benchmark: cases, data, optimizer and stopwatch.

All contenders get the same initial weights and the same batches in the same order. Nothing here
imports a training framework.
"""

from __future__ import annotations

import statistics
import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from gpu_models import CLASSES, Gpt2, ResNet18, Tiny

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

Batch = Any  # a pair of tensors, or a mapping for contenders that need names
Option = Any  # of an optimizer, of a section: each has its own type

SEED = 1234
WEIGHT_DECAY = 0.01
WARM_BLOCKS = 2
"""Blocks of steps that are not counted."""

BLOCKS = 5
"""Blocks whose median is reported."""

NOISE = 0.3
"""Share of random labels: losses that cannot fall to zero can be compared."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model with its data and how long it is measured."""

    name: str
    batch: int
    block: int
    """Steps from one synchronization to the next."""

    pool: int
    """Different batches."""

    lr: float
    is_bf16: bool
    checked: int
    """Samples whose loss is compared in the end."""

    passes: int
    """How often the hand-written loop repeats its steps, for contenders that compile late."""

    tolerance: float
    """Largest relative difference of the final loss to the hand-written loop's."""

    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Steps after which the loss is compared; the last blocks of them are timed."""
        return self.block * (WARM_BLOCKS + BLOCKS)


GPT2 = {"vocabulary": 50304, "length": 1024, "width": 768, "layers": 12, "heads": 12}

CASES = {
    "tiny": Case(
        name="tiny",
        batch=32,
        block=300,
        pool=4096,
        lr=1e-3,
        is_bf16=False,
        checked=4096,
        passes=2,
        tolerance=1e-3,
    ),
    "resnet18": Case(
        name="resnet18",
        batch=256,
        block=30,
        pool=64,
        lr=1e-4,
        is_bf16=True,
        checked=512,
        passes=3,
        tolerance=0.05,
        sizes={"width": 64},
    ),
    "gpt2": Case(
        name="gpt2",
        batch=16,
        block=8,
        pool=16,
        lr=3e-4,
        is_bf16=True,
        checked=4,
        passes=6,
        tolerance=0.02,
        sizes=GPT2,
    ),
}

QUICK = {
    "tiny": {"block": 4, "pool": 64},
    "resnet18": {"batch": 4, "block": 2, "pool": 4, "sizes": {"width": 8}},
    "gpt2": {
        "batch": 2,
        "block": 2,
        "pool": 4,
        "sizes": {"vocabulary": 128, "length": 16, "width": 32, "layers": 2, "heads": 2},
    },
}


def get_case(name: str, *, quick: bool = False) -> Case:
    """A case by name; a quick case is small enough for a CPU and measures nothing."""
    changes: dict[str, Any] = QUICK[name] if quick else {}
    return replace(CASES[name], **changes)


def make_model(case: Case, device: torch.device) -> nn.Module:
    """The model of a case, with the same weights for every contender."""
    torch.manual_seed(SEED)
    with torch.device(device):
        if case.name == "tiny":
            return Tiny()
        return ResNet18(**case.sizes) if case.name == "resnet18" else Gpt2(**case.sizes)


# -- data


def make_tensors(case: Case) -> tuple[Tensor, Tensor]:
    """All samples of a case: inputs and targets."""
    generator = torch.Generator().manual_seed(SEED)
    count = case.pool * case.batch
    if case.name == "gpt2":
        vocabulary, length = case.sizes["vocabulary"], case.sizes["length"]
        # Some tokens are common and most are rare, which is what a model learns first.
        draws = torch.rand(count, length + 1, generator=generator) ** 3
        tokens = (draws * vocabulary).long()
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    shape = (32,) if case.name == "tiny" else (3, 32, 32)
    targets = torch.randint(CLASSES, (count,), generator=generator)
    inputs = torch.randn(count, *shape, generator=generator)
    centres = torch.randn(CLASSES, *shape, generator=generator)
    inputs += centres[targets]
    is_noise = torch.rand(count, generator=generator) < NOISE
    targets[is_noise] = torch.randint(CLASSES, (int(is_noise.sum()),), generator=generator)
    return inputs, targets


class Batches(Dataset[Batch]):
    """Ready batches in pinned memory, handed out in turn."""

    draws_random = False
    """Epochal need not seed what is read."""

    def __init__(self, case: Case, device: torch.device, count: int, *, named: bool) -> None:
        is_cuda = device.type == "cuda"
        inputs, targets = (
            tensor.pin_memory() if is_cuda else tensor for tensor in make_tensors(case)
        )
        pairs = list(zip(inputs.split(case.batch), targets.split(case.batch), strict=True))
        # A view of pinned memory is pinned too.
        self._batches: list[Batch] = [{"x": x, "y": y} for x, y in pairs] if named else pairs
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Batch:
        return self._batches[index % len(self._batches)]


def make_loader(
    case: Case, device: torch.device, count: int, *, named: bool = False
) -> DataLoader[Batch]:
    """A loader of ready batches, which are copied from pinned memory."""
    return DataLoader(Batches(case, device, count, named=named), batch_size=None)


def autocast(case: Case, device: torch.device) -> AbstractContextManager[object]:
    """The autocast context of a case."""
    if case.is_bf16:
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()


def loss_of(scores: Tensor, targets: Tensor) -> Tensor:
    """The cross entropy of all positions of a batch."""
    return functional.cross_entropy(scores.flatten(0, -2), targets.flatten())


# -- time, memory and loss


class Watch:
    """Times blocks of steps, and reads memory and loss after the last one.

    Args:
        case: What is trained.
        device: Synchronized before each reading of the clock.
        model: The module whose weights are trained, not a wrapper of it.
        begun: When the process was started, in seconds since the epoch.
    """

    def __init__(self, case: Case, device: torch.device, model: nn.Module, begun: float) -> None:
        self._case, self._device, self._model, self._begun = case, device, model, begun
        self._steps = 0
        self._since = time.perf_counter()
        self._blocks: list[float] = []
        self._check: tuple[Tensor, Tensor] | None = None
        self._peak_whole = 0
        self.result: dict[str, Any] = {"losses": {}}

    def tick(self) -> None:
        """Note that another step begins; called by loops that have no Epochal."""
        steps = self._steps
        self._steps = steps + 1
        if steps == 1:
            self.first()
        if steps and steps % self._case.block == 0:
            self.mark(steps)
            if steps % self._case.steps == 0:
                self.finish(steps)

    def first(self) -> None:
        """Note that the first step is done."""
        self._wait()
        self.result["first_step_seconds"] = time.time() - self._begun

    def mark(self, steps: int) -> None:
        """End a block and begin the next one."""
        self._wait()
        self._blocks.append((time.perf_counter() - self._since) / self._case.block)
        if steps % self._case.steps == self._case.block * WARM_BLOCKS:
            self._reset_peak()
        self._since = time.perf_counter()

    def finish(self, steps: int) -> None:
        """Note time and memory of the blocks just timed, and the loss; may be called again.

        The memory of a captured graph is reserved but not counted as allocated when the graph
        is replayed: the peak of the whole run includes it, and so does what is reserved.
        """
        timed = self._blocks[-BLOCKS:]
        if "us_per_step" not in self.result:
            self.result |= {
                "steps": steps,
                "us_per_step": statistics.median(timed) * 1e6,
                "us_blocks": [seconds * 1e6 for seconds in timed],
                "us_all_blocks": [seconds * 1e6 for seconds in self._blocks],
            } | self._memory()
        self.result["losses"][str(steps)] = self._loss()
        self._since = time.perf_counter()

    def _memory(self) -> dict[str, float]:
        if self._device.type != "cuda":
            return {}
        peak = torch.cuda.max_memory_allocated(self._device)
        return {
            "peak_gb": peak / 1e9,
            "peak_whole_gb": max(peak, self._peak_whole) / 1e9,
            "reserved_gb": torch.cuda.memory_reserved(self._device) / 1e9,
        }

    def _reset_peak(self) -> None:
        if self._device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self._device)
            self._peak_whole = max(peak, self._peak_whole)
            torch.cuda.reset_peak_memory_stats(self._device)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    @torch.no_grad()
    def _loss(self) -> float:
        """The loss of the weights as they are, without dropout or batch statistics."""
        if self._check is None:
            inputs, targets = (tensor[: self._case.checked] for tensor in make_tensors(self._case))
            self._check = inputs.to(self._device), targets.to(self._device)
        was_training = self._model.training
        self._model.eval()
        # In float32, which is more precise than bf16: the contender may be inside an autocast.
        with torch.autocast(self._device.type, enabled=False):
            loss = loss_of(self._model(self._check[0]), self._check[1])
        self._model.train(was_training)
        return float(loss)


# -- all of it


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The arguments of a contender."""

    case: Case
    device: torch.device
    model: nn.Module
    watch: Watch
    scratch: Path
    is_quick: bool

    @property
    def num_batches(self) -> int:
        """One more than are timed: the stopwatch is read when a step begins."""
        return self.case.steps + 1


def adamw(bench: Bench, **options: Option) -> torch.optim.AdamW:
    """The optimizer of every contender."""
    lr = options.pop("lr", bench.case.lr)
    parameters = bench.model.parameters()
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=WEIGHT_DECAY, **options)
