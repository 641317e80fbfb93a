"""DDP: closures, several optimizers, compiled steps, averages, stages and early stops of all ranks.

Two ranks run every training in one process group, and one process runs it alone. This file is also
their program.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import epochal as ep
from epochal.testing import TinyTask

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

RANKS = 2


class Net(nn.Module):
    """Two parts with a loss each."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x))


class Batches(TinyTask):
    """Batches that two processes cannot divide equally; the last one has a single sample."""

    def __init__(self) -> None:
        super().__init__(num_samples=26, batch_size=5)

    def batch_forward(self, model, batch):
        return {"logits": model(batch["x"].to(next(model.parameters()).dtype))}


class TwoLosses(Batches):
    """Each part of the model has a loss of its own, with other counts."""

    def batch_loss(self, out, batch):
        hits = functional.cross_entropy(out["logits"], batch["label"], reduction="none")
        count = (1 + batch["label"]).sum()
        head = (hits * (1 + batch["label"])).sum() / count
        return {
            "loss": (hits.mean(), len(hits)),
            "body": (out["logits"].square().mean(), len(hits)),
            "head": (head, count),
        }


class FewItems(Batches):
    """The loss is a mean over few samples: none in some slices, and none in some batches."""

    def batch_loss(self, out, batch):
        target = batch["label"].masked_fill(batch["label"] > 0, -100)  # -100 is left out
        count = (target == 0).sum()
        return {"loss": (functional.cross_entropy(out["logits"], target), count)}


class FewCounted(FewItems):
    """The same with counts on the host, which cannot be 0 for a whole batch."""

    def batch_loss(self, out, batch):
        loss, count = super().batch_loss(out, batch)["loss"]
        return {"loss": (loss, int(count) if ep.current_run().world_size > 1 else count)}


class OwnStream(Batches):
    """Each process reads its own part of a stream."""

    def __init__(self) -> None:
        super().__init__()
        samples = ep.data.chain(self.train_loader.dataset)
        pipes = (ep.data.Repeat(), ep.data.ShardByRank(), ep.data.Filter(bool))
        self.train_loader = samples.then(*pipes).loader(batch_size=4)


SCENARIOS: dict[str, dict[str, Any]] = {
    "closure": {
        "optim": {"type": "LBFGS", "lr": 0.1, "max_iter": 3, "line_search_fn": "strong_wolfe"},
        "dtype": torch.float64,  # its line search would amplify rounding
    },
    "accumulated closure": {
        "optim": {"type": "LBFGS", "lr": 0.1, "max_iter": 3, "accumulate": 2},
        "dtype": torch.float64,
    },
    "several optimizers": {
        "task": TwoLosses(),
        "optim": {
            "first": {"type": "SGD", "match": "body", "lr": 0.1, "loss": "body", "clip": 0.5},
            "second": {"type": "AdamW", "match": "head", "lr": 0.01, "loss": "head", "every": 2},
        },
        "average": {"type": "ema", "decay": 0.8},
        "dtype": torch.float64,
    },
    "few items": {
        "task": FewItems(),
        "optim": {"type": "AdamW", "lr": 0.01},
        "dtype": torch.float64,
    },
    "few counted": {
        "task": FewCounted(),
        "optim": {"type": "AdamW", "lr": 0.01, "accumulate": 2},
        "dtype": torch.float64,
    },
    "compiled": {
        "optim": {"type": "AdamW", "lr": 0.01, "clip": 0.5},
        "engine": {"step": "compile", "compile_backend": "eager"},
    },
    "early stop": {
        "optim": {"type": "SGD", "lr": 1e-12},
        "schedule": {"type": "cosine", "warmup": "3st"},
        "average": {"type": "ema", "decay": 0.8, "warmup": True},
        "hooks": [{"type": "EarlyStopping", "patience": 2}],
        "monitor": "-val/loss",
    },
    "stages": {
        "optim": {"type": "AdamW", "lr": 0.01},
        "average": {"type": "ema", "decay": 0.8},
        "monitor": "+val/acc",
        "stages": [
            {"name": "head", "for": "3st", "freeze": ["body"]},
            {
                "name": "all",
                "for": "6st",
                "until": {"plateau": 2},
                "unfreeze": ["body"],
                "optim": {"type": "SGD", "lr": 0.1, "momentum": 0.9},
                "schedule": {"type": "cosine", "warmup": "2st"},
            },
            {"name": "large", "for": "2st", "batch_size": 7},
        ],
    },
    "double": {
        "optim": {"type": "AdamW", "lr": 0.01},
        "dtype": torch.float64,
        "average": {"type": "ema", "decay": 0.8},
    },
    "stream": {"task": OwnStream(), "optim": {"type": "SGD", "lr": 0.1}},
    "half": {
        "optim": {"type": "SGD", "lr": 0.1},
        "engine": {"precision": "bf16"},
    },
}
"""Trainings that are compared with one process."""


class Compare(ep.Hook):
    """Notes the state of this process after every step and at the end."""

    priority = 900

    def __init__(self) -> None:
        self.steps: list[Any] = []

    def step_end(self, run):
        rates = run.used_learning_rates
        self.steps.append([run.step, run.stage.name, rates, digest(run.raw_model.parameters())])

    def run_end(self, run):
        averaged = {} if run.average is None else run.average.state_tensors()
        self.end = {
            "steps": self.steps,
            "reason": run.stop_reason,
            "dtypes": sorted({str(one.dtype) for one in run.raw_model.parameters()}),
            "average": digest(averaged.values()),
        }
        self.weights = {name: one.tolist() for name, one in run.raw_model.named_parameters()}


def digest(tensors: Iterable[Tensor]) -> str:
    """The bits of tensors."""
    parts = [one.detach().reshape(-1).view(torch.uint8).numpy() for one in tensors]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def train(name: str) -> dict[str, Any]:
    """What this process knows after a scenario."""
    torch.manual_seed(0)
    scenario = {**SCENARIOS[name]}
    hooks, compare = scenario.pop("hooks", []), Compare()
    model = Net().to(scenario.pop("dtype", torch.float32))
    length = {} if "stages" in scenario else {"for": "11st"}
    result = ep.Experiment(
        **{"task": Batches(), **scenario},
        model=model,
        train={**length, "eval_every": "2st"},
        hooks=[*hooks, compare],
        log={"tensorboard": False},
        checkpoint={"every": 0},
        choices={"device": "cpu", "raise_errors": True, "no_file": True},
    ).fit()
    found = {"end": compare.end, "weights": compare.weights}
    return found | {"metrics": result.metrics, "result": [result.steps, result.reason]}


def work(rank: int, ranks: int, folder: Path) -> None:
    """Train every scenario as one rank of some, or alone."""
    torch.set_num_threads(1)
    if ranks > 1:
        store = dist.FileStore(str(folder / "store"), ranks)
        timeout = timedelta(seconds=300)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timeout)
        numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks}
        os.environ.update({key: str(number) for key, number in numbers.items()})
    found = {name: train(name) for name in SCENARIOS}
    Path(f"found.{rank}").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What one process and each rank know after each scenario."""
    from forked import Child  # not at the top: the ranks run this file without it

    folder = tmp_path_factory.mktemp("shared")
    found = {}
    for ranks in (1, RANKS):
        own = folder / str(ranks)
        own.mkdir()
        words = [str(ranks), str(own)]
        children = [Child(__file__, str(rank), *words, cwd=own) for rank in range(ranks)]
        for rank, child in enumerate(children):
            done = child.end()
            assert done.returncode == 0, done.stdout + done.stderr
            name = "alone" if ranks == 1 else f"rank {rank}"
            found[name] = json.loads((own / f"found.{rank}").read_text())
    return found


def test_ranks_take_the_steps_of_one_process(trained) -> None:
    for name in SCENARIOS.keys() - {"stream"}:  # whose order depends on the number of ranks
        alone, found = trained["alone"][name], trained["rank 0"][name]
        assert found["result"] == alone["result"], name
        tolerance = 1e-9 if "dtype" in SCENARIOS[name] else 0.02 if name == "half" else 1e-5
        for key, weights in alone["weights"].items():
            torch.testing.assert_close(
                torch.tensor(found["weights"][key], dtype=torch.float64),
                torch.tensor(weights, dtype=torch.float64),
                atol=tolerance,
                rtol=tolerance,
                msg=lambda text, case=(name, key): f"{case}: {text}",
            )
        wanted = pytest.approx(alone["metrics"], rel=max(10 * tolerance, 1e-5))
        assert found["metrics"] == wanted, name
        steps = zip(found["end"]["steps"], alone["end"]["steps"], strict=True)
        for own, expected in steps:
            assert own[:3] == expected[:3], name  # number, stage and rates


def test_every_rank_has_the_same_bits_after_every_step(trained) -> None:
    for name in SCENARIOS:
        assert trained["rank 0"][name]["end"] == trained["rank 1"][name]["end"], name


def test_early_stop_and_stages_end_on_every_rank(trained) -> None:
    for rank in ("rank 0", "rank 1"):
        found = trained[rank]
        assert found["early stop"]["end"]["reason"] == "early_stop", rank
        assert found["early stop"]["result"][0] < 11
        stages = [stage for _, stage, *_ in found["stages"]["end"]["steps"]]
        assert list(dict.fromkeys(stages)) == ["head", "all", "large"], rank
        assert found["double"]["end"]["dtypes"] == ["torch.float64"]
        assert found["half"]["end"]["dtypes"] == ["torch.float32"]
        assert found["stream"]["result"] == [11, "max_steps"]


if __name__ == "__main__":
    work(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
