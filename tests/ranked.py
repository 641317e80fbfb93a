"""A project for runs of several processes: it writes down its samples and injects faults."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file

from epochal.records import read_run
from forked import Child
from resume import results_of

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from torch import Tensor

PARTS = '''
import json
import os
import signal
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import epochal as ep
from epochal.engine.state import shard_exchange


class Points(Dataset):
    def __init__(self, num):
        self.x = torch.randn(num, 4, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index]
        return {"x": x + 0.1 * torch.randn(4), "y": (x.sum() > 0).long(), "index": index}


class Batch:
    """A batch of the user's own class."""

    def __init__(self, samples):
        for name in samples[0]:
            setattr(self, name, torch.stack([torch.as_tensor(one[name]) for one in samples]))

    def to(self, device):
        return self


class Task(ep.Task):
    def __init__(
        self, *, tokens: bool = False, uneven: bool = False, chain: bool = False
    ) -> None:
        collate = {"collate_fn": Batch}
        num = 15 if uneven and os.environ["RANK"] == "1" else 22
        self.train_loader = DataLoader(Points(num), batch_size=5, shuffle=True, **collate)
        self.val_loader = DataLoader(Points(13), batch_size=3, **collate)
        self.test_loader = self.val_loader
        self.predict_loader = DataLoader(Points(41), batch_size=1, **collate)
        self.tokens = tokens
        if chain:
            train, val = ep.data.chain(Points(22)), ep.data.chain(Points(13))
            self.train_loader = train.loader(batch_size=5, shuffle=True, collate=Batch)
            self.val_loader = val.loader(batch_size=3, collate=Batch)

    def batch_forward(self, model, batch):
        if ep.current_run().split == "train" and ep.current_run().world_size > 1:
            assert type(model).__name__ in ("DistributedDataParallel", "FSDPNet")
        return {"logits": model(batch), "index": batch.index}

    def postprocess(self, out, batch):
        suffer(ep.current_run())
        return out["index"]

    def batch_loss(self, out, batch):
        run = ep.current_run()
        if run.split == "train" and self.train_loader is not None:
            with open(f"samples.{run.rank}", "a") as file:
                file.write(json.dumps([run.step, batch.index.tolist()]) + chr(10))
            suffer(run)
        loss = functional.cross_entropy(out["logits"], batch.y, reduction="none")
        weight = 1.0 + (batch.index % 3) if self.tokens else torch.ones(len(loss))
        count = weight.sum() if self.tokens else len(loss)
        return {"loss": ((loss * weight).sum() / weight.sum(), count)}

    def batch_metric(self, out, batch):
        return {"acc": ((out["logits"].argmax(1) == batch.y).float().mean(), len(batch.y))}


def suffer(run):
    """Do what a file says about this step and rank, once."""
    path = Path("faults") / f"{run.step}-{run.rank}"
    if not path.exists():
        return
    kind = path.read_text()
    path.unlink()
    if kind == "break":
        breakpoint()
        return
    if kind == "raise":
        raise ValueError(f"broken on purpose in rank {run.rank}")
    if kind == "exit":
        raise SystemExit(5)
    if kind == "lose":  # the whole machine
        os.kill(os.getppid(), signal.SIGKILL)
        kind = "kill"
    if kind == "torn":  # die in the next save
        shard_exchange.write_shard = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        return
    if kind == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # else the launcher waits before it kills
        time.sleep(600)
    if kind == "pause" and os.fork() == 0:
        parent = os.getppid()
        while open(f"/proc/{parent}/stat").read().split()[2] != "T":
            pass
        os.kill(parent, signal.SIGCONT)
        os._exit(0)
    names = {"kill": "SIGKILL", "pause": "SIGSTOP", "term": "SIGTERM", "int": "SIGINT"}
    os.kill(os.getpid(), getattr(signal, names[kind]))


class Net(nn.Module):
    def __init__(self, *, dropout: float = 0.0, norm: bool = False, unused: bool = False) -> None:
        super().__init__()
        norms = nn.BatchNorm1d(8) if norm else nn.Identity()
        self.body = nn.Sequential(nn.Linear(4, 8), norms, nn.ReLU(), nn.Dropout(dropout))
        self.head = nn.Linear(8, 2)
        if unused:
            self.spare = nn.Linear(8, 2)

    def forward(self, batch):
        return self.head(self.body(batch.x))
'''

CONFIG = """
tag: ranks
task: {type: parts.Task}
model: {type: parts.Net}
optim: {type: AdamW, lr: 0.01, clip: 0.5}
schedule: {type: cosine, warmup: 3st}
average: {type: ema, decay: 0.8}
metrics:
  - {type: accuracy, name: top, inputs: {logits: out.logits, target: batch.y}, on: [train, val]}
monitor: +val/acc
train: {for: 3ep}
log: {record_every: 1st, tensorboard: false, system_every: 0}
engine: {check_ranks: 4st}
checkpoint: {every: 2st}
"""


class Project:
    """The project in a folder, and what its runs left there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "parts.py").write_text(dedent(PARTS))
        (folder / "ranks.yaml").write_text(CONFIG)

    def begin(
        self, *words: str, faults: dict[str, str] | None = None, input: str = "", **env: str
    ) -> Child:
        """Start ``epochal`` with some words on the CPU."""
        (self.folder / "faults").mkdir(exist_ok=True)
        for name, kind in (faults or {}).items():
            (self.folder / "faults" / name).write_text(kind)
        verb, *rest = words
        options = [verb, *rest, "--device", "cpu"]
        whole = {**os.environ, "OMP_NUM_THREADS": "1", **env}
        return Child("-m", "epochal", *options, cwd=self.folder, env=whole, input=input)

    def run(
        self, *words: str, faults: dict[str, str] | None = None, input: str = "", **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run ``epochal`` to its end; ``input`` is what a user types."""
        return self.begin(*words, faults=faults, input=input, **env).end()

    def train(
        self, name: str, nproc: int, *words: str, faults: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Train in some processes; the record is in the folder ``name``."""
        where = f"record.log_dir={name}"
        return self.run("run", "ranks.yaml", where, "--nproc", str(nproc), *words, faults=faults)

    def find(self, name: str) -> Path:
        """The record that ``train`` wrote."""
        (found,) = (self.folder / name).glob("*/*/*/run.json")
        return found.parent

    def weights(self, name: str) -> dict[str, Tensor]:
        """The final weights."""
        return load_file(self.find(name) / "checkpoints" / "final.safetensors")

    def results(self, name: str) -> dict[str, Any]:
        """Weights, points and all else that a run computes, as bits."""
        return results_of(read_run(self.find(name)))

    def take_samples(self) -> dict[int, set[int]]:
        """The samples of each step in all processes; forgets them."""
        found: dict[int, set[int]] = defaultdict(set)
        for file in self.folder.glob("samples.*"):
            for line in file.read_text().splitlines():
                step, indices = json.loads(line)
                found[step] |= set(indices)
            file.unlink()
        return dict(found)
