"""Comparing real runs shows exactly what was changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import epochal as ep
from small_project import Command, forgetting, run_folders

if TYPE_CHECKING:
    from pathlib import Path


def train(shop: Path, epochal: Command, *words: str) -> str:
    """Train the shop; gives the id of the run."""
    with forgetting(shop):  # a fresh process would read the code again
        assert epochal("run", "config.yaml", *words).code == 0
    return run_folders(shop)[-1].name


def compared(epochal: Command, *words: str) -> dict[str, Any]:
    done = epochal("diff", *words, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_repeated_run_is_bit_equal(shop: Path, epochal: Command) -> None:
    one, other = train(shop, epochal), train(shop, epochal)
    found = compared(epochal, one, other)
    assert [name for name in found["differing"] if name != "code"] == []
    assert found["code"]["files"] == []  # Epochal's own code may change meanwhile
    assert found["curves"][0]["num_points"] > 20


def test_changes_of_config_and_code_are_found_with_their_effect(
    shop: Path, epochal: Command
) -> None:
    config, parts = shop / "config.yaml", shop / "shop" / "parts.py"
    one = train(shop, epochal)
    config.write_text(config.read_text().replace("lr: 0.05", "lr: 0.05\n  weight_decay: 0"))
    parts.write_text(parts.read_text().replace('"red"', '"scarlet"'))
    other = train(shop, epochal, "optim.lr=0.3", "optim.nesterov=false")
    found = compared(epochal, one, other)
    [lr] = found["params"]["differences"]
    assert lr["key"] == "optim.lr"
    assert [side["value"] for side in lr["sides"]] == [0.05, 0.3]
    assert [side["where"] for side in lr["sides"]] == ["config.yaml:6:7", "command line"]
    assert found["code"]["source"] == "snapshot"
    [config_file, parts_file] = found["code"]["files"]
    assert (config_file["path"], parts_file["path"]) == ("config.yaml", "shop/parts.py")
    assert any(line.startswith("+") and "scarlet" in line for line in parts_file["lines"])
    assert [one["key"] for one in found["data"]["differences"]] == ["meta.classes.0"]
    assert found["seed"]["differences"] == []
    assert found["packages"]["differences"] == []
    parting = found["curves"][0]["bitwise"]
    assert parting["step"] == 1
    assert "lr" in parting["names"]


def test_runs_that_differ_only_by_seed_have_a_mean(shop: Path, epochal: Command) -> None:
    runs = [train(shop, epochal, f"seed={seed}", "--name", f"s{seed}") for seed in (1, 2)]
    train(shop, epochal, "seed=3", "optim.lr=0.3")
    done = epochal("diff", *runs)
    assert "replicates: they differ only by seed" in done.out
    assert "mean of 2" in done.out
    group, _ = compared(epochal, *runs)["replicates"]
    assert group["runs"] == runs
    assert group["means"]["val/acc"]["count"] == 2


def test_resumed_run_is_compared_by_its_current_config(shop: Path, epochal: Command) -> None:
    short = train(shop, epochal, "train.for=1ep")
    whole = train(shop, epochal)
    with forgetting(shop):
        assert epochal("resume", short, "train.for=2ep").code == 0
    found = compared(epochal, short, whole)
    assert found["params"]["differences"] == []
    assert found["curves"][0]["bitwise"] is None
    assert found["metrics"]


@pytest.mark.usefixtures("shop")
def test_runs_are_compared_from_python() -> None:
    one = ep.run("config.yaml")
    other = ep.run("config.yaml", overrides=["seed=1"])
    assert one.dir is not None
    assert other.dir is not None
    found = ep.diff(one.dir, other.dir)
    assert found.differing(("params", "seed", "code", "data")) == ["seed"]
    assert str(found).startswith("they differ in the seed")
