"""Tests of ``epochal find-batch``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from epochal.cli.verbs.tools.find_batch import _describe
from epochal.engine import RunResult
from epochal.experiment.tools.find_batch import BatchSearchResult, BatchTry
from small_project import Command, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def limited(shop: Path) -> Path:
    write(
        shop / "shop" / "limited.py",
        """
        import torch
        from shop.parts import Points

        class Limited(Points):
            def batch_forward(self, model, batch):
                if model.training and len(batch["x"]) > 3:
                    raise torch.OutOfMemoryError("no more room")
                return super().batch_forward(model, batch)
        """,
    )
    return shop


def test_microbatch_is_suggested(limited: Path, epochal: Command) -> None:
    words = ("config.yaml", "task.type=shop.limited.Limited", "--limit", "64")
    done = epochal("find-batch", *words)
    assert done.code == 0
    assert "3 samples fit at once" in done.out
    assert "write engine: {microbatch: 3}, which gives the same training" in done.out
    found = json.loads(epochal("find-batch", *words, "--json").out)
    assert (found["samples"], found["batch_size"]) == (3, 4)
    assert epochal("run", *words[:2], "engine.microbatch=3", "--no-file").code == 0
    assert epochal("run", *words[:2], "engine.microbatch=auto", "--no-file").code == 0


def test_batches_that_fit_need_no_change(shop: Path, epochal: Command) -> None:
    out = epochal("find-batch", "config.yaml", "--limit", "24").out
    assert "24 samples or more fit at once" in out
    assert "batches of 4 fit as they are" in out
    assert "there is room for batches of up to 24" in out


def test_a_cpu_needs_a_limit(shop: Path, epochal: Command) -> None:
    done = epochal("find-batch", "config.yaml", "--device", "cpu")
    assert done.code == 78
    assert "needs a device with its own memory" in done.err


def test_memory_is_shown_if_measured() -> None:
    mib = 2**20
    tries = (BatchTry(1, True, 10 * mib), BatchTry(2, True, 12 * mib), BatchTry(4, False))
    result = RunResult(status="finished", reason="completed")
    lines = list(_describe(BatchSearchResult("digits", "cuda:0", tries, 64, 100, result)))
    assert lines[0] == "digits on cuda:0"
    assert "2 samples fit at once, 2.0 MiB each" in lines
    none = BatchSearchResult("digits", "cuda:0", (BatchTry(1, False),), 64, 100, result)
    assert list(_describe(none))[-1].startswith("not even one sample fits")
