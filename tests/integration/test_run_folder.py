"""The files of a run folder."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import epochal as ep
from epochal.config import load
from epochal.records import read_run
from small_project import Command, run_folders

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(shop: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/epochal", "run", "config.yaml", "--desc", "a b"])
    words = ("run", "config.yaml", "optim.lr=0.07", "--name", "Proof", "--desc", "does it\nhold?")
    assert epochal(*words).code == 0
    return run_folders(shop)[0]


def read(path: Path) -> dict[str, object]:
    values: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return values


def test_readme_has_the_tag_as_title_and_the_purpose_as_body(folder: Path) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# Proof\n\ndoes it\nhold?\n")


def test_config_is_kept_as_written_with_its_bases(folder: Path, shop: Path) -> None:
    for name in ("config.yaml", "base.yaml"):
        kept = folder / "config" / "written" / name
        assert kept.read_bytes() == (shop / name).read_bytes()


def test_config_is_kept_expanded_with_every_default(folder: Path) -> None:
    expanded = load(folder / "config" / "expanded.yaml").root.to_plain()
    assert expanded["optim"] | {"lr": 0.07, "momentum": 0.9, "nesterov": False} == expanded["optim"]
    assert expanded["model"]["dropout"] == 0.1
    assert "$BASE" not in expanded
    assert "variants" not in expanded


def test_config_is_kept_as_constructors_received_it(folder: Path) -> None:
    observed = json.loads((folder / "config" / "observed.json").read_text())
    assert observed["task"] == {
        "type": "shop.parts.Points",
        "arguments": {"num_samples": 24, "batch_size": 4},
    }
    assert observed["optim"]["arguments"]["lr"] == 0.07


def test_provenance_names_the_source_of_every_value(folder: Path) -> None:
    provenance = json.loads((folder / "config" / "provenance.json").read_text())
    layers = [origin["layer"] for origin in provenance["optim.lr"]]
    assert layers == ["command line", "file", "base"]


def test_facts_of_the_start_are_kept(folder: Path) -> None:
    facts = json.loads((folder / "run.json").read_text())
    assert facts["command"] == "epochal run config.yaml --desc 'a b'"
    assert facts["seed"] == 0
    assert facts["epochal"]
    assert facts["torch"]
    assert facts["machine"]["packages"]["numpy"]
    assert facts["machine"]["cores"] >= 1
    assert facts["device"]["device"]


def test_status_and_result_say_how_the_run_ended(folder: Path) -> None:
    status, result = read(folder / "status.json"), read(folder / "result.json")
    assert (status["status"], status["reason"]) == ("finished", "max_epochs")
    assert (status["step"], status["epoch"]) == (12, 2)
    assert result["metrics"]["val/acc"] == result["best"] or result["best"] is not None  # type: ignore[index]
    assert str(status["ended"]) >= str(status["started"])


def test_metrics_can_be_read_with_one_line_of_numpy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (folder / "README.md").read_text()
    (line,) = [line for line in readme.splitlines() if line.startswith("np.fromfile")]
    monkeypatch.chdir(folder)
    points = eval(line, {"np": np})  # the line in the documentation
    names = [json.loads(text) for text in (folder / "series.jsonl").read_text().splitlines()]
    (loss,) = [entry["id"] for entry in names if entry["name"] == "train/loss"]
    steps = points["step"][points["series"] == loss]
    assert steps.tolist() == list(range(1, 13))


def test_record_reads_back_the_values_of_the_run(folder: Path) -> None:
    record = read_run(folder)
    assert {"lr", "train/loss", "val/acc", "train/epoch/loss"} <= set(record.metric_names())
    assert record.last("lr").value == 0.07
    assert record.last("val/acc").value == record.result["metrics"]["val/acc"]
    kinds = [event["kind"] for event in record.events]
    assert kinds[0] == "run_start"
    assert "run_end" in kinds[-2:]  # the last checkpoint may be written a moment later


def test_log_has_the_terminal_output(folder: Path) -> None:
    text = (folder / "logs" / "run.log").read_text(encoding="utf-8")
    assert "Epoch [1/2][2/6]" in text
    assert "INFO epochal" in text


def test_folders_for_users_exist(folder: Path) -> None:
    assert (folder / "media").is_dir()
    assert (folder / "checkpoints" / "final.safetensors").is_file()


def test_runs_of_the_same_second_get_different_folders(shop: Path) -> None:
    results = ep.run(["config.yaml"] * 4, fast=True)
    assert len({result.dir for result in results}) == 4


def test_run_json_has_a_fingerprint_of_the_training_data(folder: Path) -> None:
    data = read(folder / "run.json")["data"]
    assert isinstance(data, dict)
    assert data["train"]["length"] == 24
