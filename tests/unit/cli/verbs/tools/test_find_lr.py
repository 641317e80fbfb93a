"""Tests of ``epochal find-lr``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from epochal.cli.verbs.tools.find_lr import _rate
from small_project import Command, tree

if TYPE_CHECKING:
    from pathlib import Path

WORDS = ("find-lr", "config.yaml", "--device", "cpu")


def test_losses_are_plotted_and_a_change_is_suggested(
    shop: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    before = tree(shop)
    done = epochal(*WORDS, "--max", "100")
    assert done.code == 0, done.err
    assert "shop on cpu: loss by learning rate" in done.out
    assert "▲ steepest" in done.out
    assert "  taken    " in done.out
    (line,) = [line for line in done.out.splitlines() if line.startswith("  write ")]
    assert line.split()[1].startswith("optim.lr=")
    assert max(len(line) for line in done.out.splitlines()) <= 80
    assert "\x1b" not in done.out + done.err
    assert tree(shop) == before


def test_suggested_change_is_a_valid_override(shop: Path, epochal: Command) -> None:
    done = epochal(*WORDS, "--max", "100")
    change = done.out.rpartition("write")[2].split()[0]
    assert epochal("check", "config.yaml", change).code == 0


def test_result_is_printed_as_json(shop: Path, epochal: Command) -> None:
    done = epochal(*WORDS, "--steps", "20", "--min", "1e-4", "--max", "0.1", "--json")
    found = json.loads(done.out)
    assert len(found["lrs"]) == len(found["losses"]) == 20
    assert found["lrs"][-1] == pytest.approx(0.1)
    assert set(found) >= {"suggestion", "tenth", "base", "reason", "smoothed"}


def test_a_picture_is_written(shop: Path, epochal: Command) -> None:
    pytest.importorskip("matplotlib")
    done = epochal(*WORDS, "--max", "100", "--png", "lr.png")
    assert "  picture  lr.png" in done.out
    assert (shop / "lr.png").read_bytes().startswith(b"\x89PNG")


def test_a_loss_that_does_not_fall_suggests_nothing(shop: Path, epochal: Command) -> None:
    done = epochal(*WORDS, "--max", "2e-8", "--steps", "40")
    assert done.code == 1
    assert "no suggestion: the loss does not fall anywhere" in done.out
    assert "optim.lr=" not in done.out


def test_empty_range_is_refused(shop: Path, epochal: Command) -> None:
    done = epochal(*WORDS, "--min", "1", "--max", "0.1")
    assert done.code == 78
    assert "--min 1e-8 --max 1" in done.err


def test_loss_that_is_always_nan_is_reported(shop: Path, epochal: Command) -> None:
    done = epochal(*WORDS, "task.type=shop.parts.NanLoss")
    assert done.code == 1
    assert "taken    0 steps of 100: the loss is no longer finite" in done.out


def test_learning_rates_are_short() -> None:
    for value, text in [(3.24e-4, "3.2e-4"), (1e-3, "1e-3"), (1.0, "1e0"), (0.5, "5e-1")]:
        assert _rate(value) == text, value
        assert float(text) == pytest.approx(value, rel=0.05), value
