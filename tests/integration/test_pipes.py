"""A chain of pipes in a config trains, also with workers and after an interruption."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

import epochal as ep
from epochal.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.engine import RunResult

PARTS = """
import json
import random

import numpy as np
from torch import nn

import epochal as ep


def open_lines(path):
    with open(path) as file:
        yield from file


def parse(line):
    return json.loads(line)


def has_words(sample, least: int = 2):
    return len(sample["text"].split()) >= least


def encode(sample, vocab: int = 32, drop: float = 0.0):
    words = [word for word in sample["text"].split() if random.random() >= drop] or ["none"]
    return {"tokens": np.array([1 + len(word) % (vocab - 1) for word in words]),
            "label": sample["label"]}


class Bag(nn.Module):
    def __init__(self, vocab: int = 32):
        super().__init__()
        self.table = nn.EmbeddingBag(vocab, 2)

    def forward(self, tokens):
        return self.table(tokens)


class Sort(ep.Task):
    def batch_forward(self, model, batch):
        return {"logits": model(batch["tokens"])}

    def batch_loss(self, out, batch):
        loss = nn.functional.cross_entropy(out["logits"], batch["label"])
        return {"loss": (loss, len(batch["label"]))}
"""
CONFIG = """
task = "pipe_parts.Sort"
model = "pipe_parts.Bag"
optim = {type = "SGD", lr = 0.5}
train = {for = "2ep", eval_loss = true}

[data.train]
workers = 0
pipes = [
  {type = "files", path = "part-*.jsonl"},
  {type = "shuffle"},
  {type = "split_by_worker", parts = 2},
  {type = "flat_map", function = "pipe_parts.open_lines"},
  {type = "shuffle_buffer", size = 8},
  {type = "pipe_parts.parse"},
  {type = "filter", function = "pipe_parts.has_words", options = {least = 2}},
  {type = "pipe_parts.encode", drop = 0.3},
  {type = "batch", size = 4, collate = "pad"},
]

[data.val]
collate = "pad"
pipes = [{type = "jsonl", path = "part-*.jsonl"}, "pipe_parts.encode"]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pipe_parts", raising=False)
    (tmp_path / "pipe_parts.py").write_text(PARTS)
    for part in range(3):
        lines = [
            json.dumps({"text": " ".join(["wo" + "o" * (n % 5)] * (1 + n % 4)), "label": n % 2})
            for n in range(part, part + 9)
        ]
        (tmp_path / f"part-{part}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "run.toml").write_text(CONFIG)
    return tmp_path


def numbers(result: RunResult) -> dict[str, float]:
    return {name: value for name, value in result.metrics.items() if "loss" in name}


def test_pipes_of_a_config_train_the_same_with_any_number_of_workers(project: Path) -> None:
    whole = ep.run("run.toml")
    assert whole.steps > 6
    for workers in (1, 2):
        again = ep.run("run.toml", overrides=[f"data.train.workers={workers}"])
        assert (again.steps, numbers(again)) == (whole.steps, numbers(whole)), workers


def test_an_interrupted_run_resumes_in_the_middle_of_a_stream(project: Path) -> None:
    whole = ep.run("run.toml")
    part = ep.run("run.toml", overrides=["train.for=3st"])
    overrides = ["train.for=2ep", "data.train.workers=2"]
    assert part.dir is not None
    resumed = ep.resume(part.dir, overrides=overrides)
    assert resumed.steps == whole.steps
    assert numbers(resumed) == numbers(whole)


def test_a_source_without_files_is_named_with_its_split(project: Path) -> None:
    with pytest.raises(DataError, match=r"^data.val: no file matches 'gone-\*.jsonl'\n"):
        ep.run("run.toml", overrides=["data.val.pipes.0.path=gone-*.jsonl"], no_file=True)


def test_mixed_chains_have_functions_and_short_names_like_any_others(project: Path) -> None:
    (project / "mix.toml").write_text(
        CONFIG.partition("[data.train]")[0]
        + """
[data.train]
pipes = [
  {type = "mix", weights = [2, 1], chains = [
    [{type = "jsonl", path = "part-0.jsonl"}, "shuffle", {type = "pipe_parts.encode", drop = 0.1}],
    [{type = "jsonl", path = "part-1.jsonl"}, "repeat", "pipe_parts.encode"],
  ]},
  {type = "bucket_by_length", size = 4, key = "tokens"},
]
"""
    )
    result = ep.run("mix.toml", no_file=True)
    assert result.ok, result.traceback
    assert result.steps > 4
