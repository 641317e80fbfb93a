"""Time per epoch on a GPU: a run beside a hand-written loop over the same loader, with workers.

    python benchmarks/gpu_data.py                    # about a minute; 4 workers
    python benchmarks/gpu_data.py --device cpu --quick

Texts are parsed, encoded and padded by 4 worker processes and classified by a small model. Both
contenders get the same chain, options, model and optimizer, and take turns; the best epoch of each
counts, from one synchronization to the next. Both must read each sample once in every epoch. The
exit code is 1 if the run is more than 2 % slower.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import epochal as ep
from data_pipes import encode, pad, write_texts

BATCH = 64
WORDS = 5000
TOLERANCE = 1.02


class Classifier(nn.Module):
    """A mean of embeddings and three layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        sizes = [(width, 4 * width), (4 * width, 4 * width)]
        self.body = nn.Sequential(*(nn.Sequential(nn.Linear(*one), nn.GELU()) for one in sizes))
        self.head = nn.Linear(4 * width, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of four classes."""
        return self.head(self.body(self.embedding(tokens).mean(dim=1)))


class Texts(ep.Task):
    """Classifies the texts of a loader, and notes when epochs begin and end."""

    def __init__(self, loader: Any) -> None:  # noqa: ANN401 - any loader
        self.train_loader = loader

    def batch_forward(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        """The scores."""
        return model(batch["tokens"])

    def batch_loss(self, out: Tensor, batch: dict[str, Tensor]) -> dict[str, tuple[Tensor, int]]:
        """Cross entropy."""
        return {"loss": (functional.cross_entropy(out, batch["label"]), len(out))}


class Stopwatch(ep.Hook):
    """Seconds of each training epoch, and the samples of each."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: list[float] = []
        self.samples: list[int] = []

    def loop_start(self, run: ep.Run, split: str) -> None:
        """Before the first batch."""
        synchronize(self.device)
        self._begun, self._before = perf_counter(), run.samples

    def loop_end(self, run: ep.Run, split: str) -> None:
        """After the last batch."""
        synchronize(self.device)
        self.seconds.append(perf_counter() - self._begun)
        self.samples.append(run.samples - self._before)


def synchronize(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def open_loader(file: Path, workers: int, device: torch.device) -> Any:  # noqa: ANN401 - a DataLoader
    """The loader of both contenders."""
    chain = ep.data.chain(ep.data.Jsonl(str(file)), encode, ep.data.Shuffle())
    return chain.loader(
        batch_size=BATCH,
        collate=pad,
        workers=workers,
        persistent_workers=True,
        prefetch=4,
        pin_memory=device.type == "cuda",
    )


def by_hand(loader: Any, width: int, epochs: int, device: torch.device) -> Stopwatch:  # noqa: ANN401 - a DataLoader
    """A loop as a careful user writes it."""
    torch.manual_seed(0)
    model = Classifier(width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    watch = Stopwatch(device)
    for _ in range(epochs):
        synchronize(device)
        begun, samples = perf_counter(), 0
        for batch in loader:
            tokens = batch["tokens"].to(device, non_blocking=True)
            label = batch["label"].to(device, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(model(tokens), label).backward()
            optimizer.step()
            samples += len(label)
        synchronize(device)
        watch.seconds.append(perf_counter() - begun)
        watch.samples.append(samples)
    return watch


def by_epochal(loader: Any, width: int, epochs: int, device: torch.device) -> Stopwatch:  # noqa: ANN401 - a DataLoader
    """The same as a run, without log and record."""
    torch.manual_seed(0)
    watch = Stopwatch(device)
    ep.Experiment(
        task=Texts(loader),
        model=Classifier(width),
        optim={"type": "AdamW", "lr": 1e-3},
        train={"for": f"{epochs}ep"},
        log={"console_every": 0},
        hooks=[watch],
        choices={"device": str(device), "no_file": True},
    ).fit()
    return watch


def main() -> None:
    """Measure both in turns, and print the best epoch of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--texts", type=int, default=40_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--quick", action="store_true", help="run both, measure nothing")
    parser.add_argument("--json", type=Path)
    words = parser.parse_args()
    if words.quick:
        words.turns, words.epochs, words.texts, words.width = 1, 2, 600, 16
    device = torch.device(words.device)
    found: dict[str, list[float]] = {"hand-written loop": [], "epochal": []}
    with tempfile.TemporaryDirectory() as name:
        file = write_texts(Path(name), words.texts)
        for turn in range(words.turns):
            runs = [("hand-written loop", by_hand), ("epochal", by_epochal)]
            for contender, train in runs if turn % 2 == 0 else runs[::-1]:
                loader = open_loader(file, words.workers, device)
                watch = train(loader, words.width, words.epochs, device)
                assert watch.samples == [words.texts] * words.epochs, (contender, watch.samples)
                found[contender] += watch.seconds[1:]  # workers start in the first
    best = {contender: min(seconds) for contender, seconds in found.items()}
    for contender, seconds in best.items():
        rate = words.texts / seconds
        print(f"{contender:20} {seconds:8.3f} s/epoch {rate:10.0f} samples/s  {found[contender]}")
    ratio = best["epochal"] / best["hand-written loop"]
    print(f"ratio {ratio:.3f}")
    if words.json is not None:
        words.json.write_text(json.dumps({**found, "ratio": ratio}, indent=2) + "\n")
    if not words.quick and ratio > TOLERANCE:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
