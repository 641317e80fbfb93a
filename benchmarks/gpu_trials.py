"""Trials per minute on one GPU: one after the other, and in a pool with N processes at once.

    python benchmarks/gpu_trials.py                          # about five minutes
    python benchmarks/gpu_trials.py --case tiny --at-once 4 --device cpu --trials 4

Each trial is an ordinary run: it has a record, an evaluation every tenth of its steps, checkpoints
and a log. ``serial`` runs all trials in one process (``epochal run a.yaml b.yaml ...``), the other
rows are ``--per-device N``; rows with MPS run below NVIDIA's server that lets kernels of several
processes share a GPU, if this machine has it. ``steps`` is the time from start to end of
training, in microseconds per step; ``bits`` compares the final weights of each trial with
those of the serial row.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BENCHMARKS = Path(__file__).resolve().parent
LIMIT = 100
"""Seconds after which a row is given up."""

PARTS = """
import hashlib
import time

import epochal as ep
import torch
from gpu_models import CLASSES, ResNet18, Tiny
from torch import nn
from torch.nn import functional


def model(name: str) -> nn.Module:
    if name == "resnet18":
        return ResNet18(width=64)
    if name == "tiny":
        return Tiny()
    hidden = (nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())
    return nn.Sequential(*hidden, nn.Linear(512, CLASSES))


class Classify(ep.Task):
    def __init__(self, shape: list[int], batch: int, samples: int) -> None:
        generator = torch.Generator().manual_seed(1)
        inputs = torch.randn(samples, *shape, generator=generator)
        labels = torch.randint(0, CLASSES, (samples,), generator=generator)
        self.train_loader = ep.data.Tensors(inputs, labels).loader(batch_size=batch, shuffle=True)
        self.val_loader = ep.data.Tensors(inputs[:256], labels[:256]).loader(batch_size=batch)

    def batch_forward(self, model, batch):
        return model(batch[0])

    def batch_loss(self, out, batch):
        return {"loss": (functional.cross_entropy(out, batch[1]), len(out))}


class Report(ep.Hook):
    def run_start(self, run: ep.Run) -> None:
        self.begun = time.perf_counter()

    def run_end(self, run: ep.Run) -> None:
        seconds = time.perf_counter() - self.begun
        digest = hashlib.sha256()
        for tensor in run.raw_model.state_dict().values():
            digest.update(tensor.cpu().numpy().tobytes())
        per_step, kind = seconds / max(run.step, 1), run.choices.get("step")
        with open("found.txt", "a", encoding="utf-8") as file:
            file.write(f"{run.seed} {digest.hexdigest()} {per_step} {kind}\\n")
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model with its data and its number of steps."""

    shape: tuple[int, ...]
    batch: int
    samples: int
    steps: int
    precision: str = "fp32"


CASES = {
    "tiny": Case(shape=(32,), batch=32, samples=4096, steps=20_000),
    "mlp": Case(shape=(784,), batch=128, samples=4096, steps=8_000),
    "resnet18": Case(shape=(3, 32, 32), batch=32, samples=1024, steps=2_000, precision="bf16"),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one way of running the trials of a case took."""

    seconds: float
    finished: dict[int, str]
    """The hash of the weights of each trial that has ended well, by seed."""

    step_us: float
    step_kind: str


def write_project(folder: Path, name: str, trials: int) -> list[str]:
    """Write the parts and one config for each trial; returns the names of the configs."""
    case = CASES[name]
    folder.mkdir(parents=True)
    (folder / "parts.py").write_text(PARTS, encoding="utf-8")
    shutil.copy(BENCHMARKS / "gpu_models.py", folder)
    names = []
    for seed in range(trials):
        config = {
            "tag": f"{name}{seed}",
            "seed": seed,
            "task": {
                "type": "parts.Classify",
                "shape": list(case.shape),
                "batch": case.batch,
                "samples": case.samples,
            },
            "model": {"type": "parts.model", "name": name},
            "optim": {"type": "AdamW", "lr": 1e-3},
            "monitor": "-val/loss",
            "train": {
                "for": f"{case.steps}st",
                "eval_every": f"{case.steps // 10}st",
                "eval_loss": True,
            },
            "engine": {"precision": case.precision, "channels_last": case.precision == "bf16"},
            "hooks": [{"type": "parts.Report"}],
        }
        names.append(f"trial{seed}.json")
        (folder / names[-1]).write_text(json.dumps(config), encoding="utf-8")
    return names


def run(folder: Path, words: list[str], environment: Mapping[str, str]) -> Row:
    """Run the command and read what the trials found."""
    begun = perf_counter()
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "epochal", "run", *words],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
    seconds = perf_counter() - begun
    found = folder / "found.txt"
    lines = [line.split() for line in found.read_text().splitlines()] if found.exists() else []
    times = sorted(float(line[2]) for line in lines)
    return Row(
        seconds=seconds,
        finished={int(line[0]): line[1] for line in lines},
        step_us=1e6 * times[len(times) // 2] if times else 0.0,
        step_kind=",".join(sorted({line[3] for line in lines})),
    )


@contextmanager
def mps(folder: Path) -> Iterator[dict[str, str] | None]:
    """The environment of NVIDIA's MPS while it runs; None if it cannot be started."""
    control = shutil.which("nvidia-cuda-mps-control")
    environment = {
        "CUDA_MPS_PIPE_DIRECTORY": str(folder / "mps"),
        "CUDA_MPS_LOG_DIRECTORY": str(folder / "mps-log"),
    }
    if control is None:
        yield None
        return
    for path in environment.values():
        Path(path).mkdir(parents=True)
    everything = {**os.environ, **environment}
    started = subprocess.run([control, "-d"], env=everything, check=False)
    try:
        yield environment if started.returncode == 0 else None
    finally:
        subprocess.run([control], input=b"quit\n", env=everything, check=False, timeout=30)


def measure(name: str, arguments: argparse.Namespace, base: Path) -> None:
    """Measure all rows of a case and print them."""
    devices = ["--devices", arguments.device]
    count = arguments.trials
    serial: Row | None = None

    def show(label: str, words: list[str], environment: Mapping[str, str]) -> None:
        nonlocal serial
        folder = base / f"{name}-{label.replace(' ', '-')}"
        configs = write_project(folder, name, count)
        row = run(folder, [*configs, *words], environment)
        serial = serial or row
        equal = sum(serial.finished.get(seed) == bits for seed, bits in row.finished.items())
        done = len(row.finished)
        per_minute = 60 * done / row.seconds
        gain = per_minute / (60 * len(serial.finished) / serial.seconds) if serial.finished else 0
        print(
            f"{name:<9} {label:<12} {done:>2} of {count} in {row.seconds:6.1f} s"
            f"  {per_minute:6.1f} per minute  gain {gain:5.2f}  steps {row.step_us:8.1f} us"
            f" ({row.step_kind})  bits equal {equal} of {done}",
            flush=True,
        )
        if done < count:
            print((folder / "output.txt").read_text(errors="replace")[-1500:], flush=True)

    one = "cuda:0" if arguments.device != "cpu" else "cpu"
    show("serial", ["--device", one], {})
    for at_once in arguments.at_once:
        show(f"pool {at_once}", [*devices, "--per-device", str(at_once)], {})
    if arguments.device == "cpu" or arguments.no_mps:
        return
    with mps(base / f"{name}-server") as environment:
        if environment is None:
            print(f"{name:<9} MPS could not be started", flush=True)
            return
        for at_once in arguments.at_once:
            show(f"MPS {at_once}", [*devices, "--per-device", str(at_once)], environment)


def main() -> None:
    """Measure the cases and print a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", action="append", choices=CASES, help="by default all")
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--at-once", type=int, nargs="+", default=[8])
    parser.add_argument("--device", default="0", help="number of a GPU, or cpu")
    parser.add_argument("--no-mps", action="store_true", help="leave out the rows with MPS")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.case or CASES:
            measure(name, arguments, Path(folder))


if __name__ == "__main__":
    main()
