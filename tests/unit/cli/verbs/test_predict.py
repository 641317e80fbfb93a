"""Tests of ``epochal predict``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from small_project import Command, run_folders, tree

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def trained(shop: Path, epochal: Command) -> Path:
    assert epochal("run", "config.yaml", "--fast").code == 0
    return run_folders(shop)[0]


def lines_of(path: Path) -> list[dict[str, list[float]]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_predictions_are_written_to_a_new_record(
    trained: Path, shop: Path, epochal: Command
) -> None:
    done = epochal("predict", "last")
    assert done.code == 0, done.err
    folder = run_folders(shop)[-1]
    assert folder != trained
    lines = lines_of(folder / "predictions.jsonl")
    assert len(lines) == 24  # all samples, although the training was limited by --fast
    assert all(len(line["logits"]) == 3 for line in lines)
    assert f"wrote    24 predictions to {folder.relative_to(shop)}" in done.out


def test_predictions_are_written_to_the_given_file(
    trained: Path, shop: Path, epochal: Command
) -> None:
    before = tree(shop)
    words = ("--no-file", "--output", "out.jsonl", "train.limit_batches=null")
    assert epochal("predict", "last", *words).code == 0
    assert set(tree(shop)) - set(before) == {"out.jsonl"}
    assert len(lines_of(shop / "out.jsonl")) == 24


def test_predictions_without_a_place_are_refused_before_predicting(
    trained: Path, epochal: Command
) -> None:
    for words, message in [
        (
            ("--no-file",),
            "there is no record for predictions\n  name a file: --output",
        ),
        (("--output", "no/such/file.jsonl"), "--output: there is no folder 'no/such'"),
    ]:
        done = epochal("predict", "last", *words)
        assert done.code == 78, words
        assert message in done.err, words
        assert done.out == "", words


def test_failed_prediction_writes_no_file(trained: Path, shop: Path, epochal: Command) -> None:
    done = epochal("predict", "last", "--output", "out.jsonl", "model.type=shop.parts.Crooked")
    assert done.code == 1
    assert not (shop / "out.jsonl").exists()
