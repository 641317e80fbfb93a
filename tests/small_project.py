"""A small project in a folder, for tests that run whole experiments."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from epochal.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PARTS = '''
"""Parts of the shop: a task and a model that work, and some that do not."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import epochal as ep
from epochal.testing import TinyModel, TinyTask


class Points(TinyTask):
    """Points of three classes.

    Args:
        num_samples: Points in each split.
        batch_size: Points in a batch.
    """

    def __init__(self, *, num_samples: int = 24, batch_size: int = 4) -> None:
        super().__init__(num_samples=num_samples, batch_size=batch_size)
        self.meta = {"classes": ["red", "green", "blue"]}


class Net(TinyModel):
    """One layer.

    Args:
        dropout: Share of inputs silenced.
    """

    def __init__(self, *, dropout: float = 0.1) -> None:
        super().__init__(dropout=dropout)


class Stumbling(Points):
    def __init__(self) -> None:
        raise KeyError("the shelf is empty")


class NoLoss(ep.Task):
    def batch_forward(self, model, batch):
        return {}


class FloatLoss(Points):
    def batch_loss(self, out, batch):
        return {"loss": (1.5, 4)}


class NanLoss(Points):
    def batch_loss(self, out, batch):
        loss = out["logits"].mean() * float("nan")
        return {"loss": (loss, 4)}


class Empty(Points):
    def __init__(self) -> None:
        super().__init__()
        self.train_loader = DataLoader([], batch_size=4)


class Rows(Dataset):
    """Samples that can be read, until one cannot.

    Args:
        bad: Index of the sample that raises; -1 for none.
        dies: Whether the process that reads it dies instead.
    """

    def __init__(self, *, size: int = 8, bad: int = -1, dies: bool = False) -> None:
        self.size, self.bad, self.dies = size, bad, dies

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index):
        if index == self.bad:
            if self.dies:
                import os
                os._exit(1)
            raise ValueError(f"row {index} is torn")
        return {"x": torch.full((4,), float(index)), "label": torch.tensor(index % 3)}


class Fed(TinyTask):
    """Takes its loaders from the config."""

    def __init__(self) -> None:
        pass


class Crooked(Net):
    def forward(self, x):
        raise ValueError("shapes do not fit")


class Leaving(ep.Hook):
    """Calls sys.exit in the second step."""

    def __init__(self, *, code: int = 3) -> None:
        self.code = code

    def step_end(self, run):
        if run.step == 2:
            sys.exit(self.code)


class Bragging(ep.Runner):
    """Only returns a word."""

    def __init__(self, *, word: str = "hello") -> None:
        self.word = word

    def run(self, run):
        return self.word
'''

BASE = """
optim: {type: SGD, lr: 0.1, momentum: 0.9}
train: {for: 1ep}
"""

CONFIG = """
$BASE: base.yaml
tag: shop
task: {type: shop.parts.Points}
model: {type: shop.parts.Net}
optim:
  lr: 0.05
train: {for: 2ep}
monitor: +val/acc
log: {console_every: 2st, record_every: 1st}
variants:
  hot: {optim.lr: 0.5}
  long: {train.for: 3ep}
"""


def write_shop(folder: Path) -> Path:
    """The project's files: ``config.yaml`` with its base, and the package ``shop``."""
    package = folder / "shop"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[tool.epochal]\nname = "store"\n')
    (package / "__init__.py").write_text('"""The shop."""\n')
    (package / "parts.py").write_text(PARTS.lstrip())
    (folder / "base.yaml").write_text(BASE.lstrip())
    (folder / "config.yaml").write_text(CONFIG.lstrip())
    return folder


@contextmanager
def forgetting(folder: Path) -> Iterator[None]:
    """Remove the modules that a block imported from below ``folder``."""
    path, before = list(sys.path), {*sys.modules}
    try:
        yield
    finally:
        sys.path[:] = path
        for name in sys.modules.keys() - before:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]


@dataclass(frozen=True)
class Done:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


Command = Callable[..., Done]


def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """A function that runs ``epochal`` with the given words in this process."""

    def call(*words: Any) -> Done:
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as end:
            code = int(end.code or 0)
        return Done(code, *capsys.readouterr())

    return call


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content, without Python's caches."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts
    }


def run_folders(folder: Path) -> list[Path]:
    """The folders of all runs below ``folder/runs``, oldest first."""
    found = (folder / "runs").rglob("status.json")
    return [path.parent for path in sorted(found, key=lambda path: _started(path.read_text()))]


def _started(status: str) -> str:
    started: str = json.loads(status)["started"]
    return started


def write(path: Path, text: str) -> Path:
    """Write a file with this text, without its common indentation."""
    path.write_text(dedent(text).lstrip(), encoding="utf-8")
    return path
