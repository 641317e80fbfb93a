"""The same experiment gives the same weights, in every form."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor

import epochal as ep
from epochal.checkpoint import load_weights
from epochal.config import dump, from_plain
from small_project import Command, run_folders, write

if TYPE_CHECKING:
    from pathlib import Path

EXPERIMENT: dict[str, Any] = {
    "tag": "same",
    "seed": 3,
    "task": {"type": "shop.parts.Points", "batch_size": 5},
    "model": {"type": "shop.parts.Net", "dropout": 0.3},
    "optim": {"type": "AdamW", "lr": 0.02, "betas": [0.8, 0.9], "clip": 1.0, "accumulate": 2},
    "schedule": {"type": "cosine", "warmup": "2st"},
    "train": {"for": "2ep"},
    "monitor": "+val/acc",
    "log": {"console_every": 0, "level": "error"},
}


def weights_of(result: ep.RunResult) -> dict[str, Tensor]:
    assert result.ok, result.traceback
    assert result.dir is not None
    return load_weights(result.dir / "checkpoints" / "final.safetensors")


def are_equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_same_config_twice_gives_bit_equal_weights(shop: Path) -> None:
    one, two = (weights_of(ep.run(EXPERIMENT)) for _ in range(2))
    assert are_equal(one, two)


def test_other_seed_gives_other_weights(shop: Path) -> None:
    one, two = (weights_of(ep.run(EXPERIMENT, overrides=[f"seed={seed}"])) for seed in (3, 4))
    assert not are_equal(one, two)


def test_random_state_of_the_caller_does_not_change_the_run(shop: Path) -> None:
    torch.manual_seed(1)
    one = weights_of(ep.run(EXPERIMENT))
    torch.manual_seed(2)
    before = torch.get_rng_state()
    two = weights_of(ep.run(EXPERIMENT))
    assert are_equal(one, two)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_way_to_write_an_experiment_gives_the_same_weights(shop: Path) -> None:
    tree = from_plain(EXPERIMENT)
    sources: list[Any] = [EXPERIMENT]
    for format in ("yaml", "toml", "json"):
        path = shop / f"same.{format}"
        path.write_text(dump(tree, format), encoding="utf-8")
        sources.append(path)
    sources.append(argparse.Namespace(**EXPERIMENT))
    sources.append(OmegaConf.create(EXPERIMENT))
    first, *others = [weights_of(result) for result in ep.run(sources)]
    for other in others:
        assert are_equal(first, other)


@pytest.mark.parametrize("format", ["yaml", "toml", "json"])
def test_expanded_config_alone_reproduces_the_run(shop: Path, format: str, tmp_path: Path) -> None:
    path = shop / f"config.{format}"
    if format != "yaml":
        path.write_text(dump(from_plain(EXPERIMENT), format), encoding="utf-8")
    first = ep.run(path, overrides=["optim.lr=0.011"])
    assert first.dir is not None
    # Alone: without its base and its original file.
    copy = shop / f"alone.{format}"
    copy.write_bytes((first.dir / "config" / f"expanded.{format}").read_bytes())
    (shop / "base.yaml").unlink()
    path.unlink()
    second = ep.run(copy)
    assert are_equal(weights_of(first), weights_of(second))
    assert first.metrics == second.metrics
    assert first.config == second.config


def test_order_of_samples_differs_between_epochs_but_not_between_runs(shop: Path) -> None:
    orders: list[list[float]] = []

    class Order(ep.Hook):
        def batch_start(self, run: ep.Run, split: str, index: int, batch: Any) -> None:
            if split == "train":
                if index == 0:
                    orders.append([])
                orders[-1].extend(batch["x"][:, 0].tolist())

    for _ in range(2):
        ep.Experiment(EXPERIMENT, hooks=[Order()], choices={"no_file": True}).fit()
    first, second, *again = orders
    assert first != second
    assert sorted(first) == sorted(second)
    assert again == [first, second]


def test_evaluating_more_often_does_not_change_the_training(shop: Path) -> None:
    one = weights_of(ep.run(EXPERIMENT))
    often = ["train.eval_every=1st", "train.eval_at_start=true", "train.sanity_batches=0"]
    assert are_equal(one, weights_of(ep.run(EXPERIMENT, overrides=often)))


def test_hooks_and_logging_do_not_change_the_training(shop: Path) -> None:
    one = weights_of(ep.run(EXPERIMENT))
    changes = ["log.console_every=1st", "log.record_every=1st", "log.grad_norm=true"]
    changes.append("hooks=[{type: EarlyStopping, patience: 100}]")
    assert are_equal(one, weights_of(ep.run(EXPERIMENT, overrides=changes)))


def test_environment_values_are_not_recorded_and_needed_again(
    shop: Path, monkeypatch: pytest.MonkeyPatch, epochal: Command
) -> None:
    monkeypatch.setenv("SHOP_KEY", "s3cret-value")
    write(
        shop / "env.yaml",
        """
        $BASE: config.yaml
        env: [SHOP_KEY]
        extra: {key: "${env:SHOP_KEY}"}
        """,
    )
    assert epochal("run", "env.yaml", "--fast").code == 0
    (folder,) = run_folders(shop)
    for path in folder.rglob("*"):
        if path.is_file():
            assert b"s3cret-value" not in path.read_bytes(), path
    again = ep.run(folder / "config" / "expanded.yaml", no_file=True)
    assert again.config["extra"]["key"] == "s3cret-value"
    assert json.loads(epochal("show", "last", "--explain", "extra.key", "--json").out)
