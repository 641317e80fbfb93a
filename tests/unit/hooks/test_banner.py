"""The banner before the first step."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console as Screen
from torch.utils.data import DataLoader, IterableDataset

from epochal.checkpoint import deserialize_state, snapshot_to_host
from epochal.config import from_plain
from epochal.config.node import Node
from epochal.distributed.environment import read_rank_environment
from epochal.engine import Hook, Run
from epochal.engine.interfaces.run import ResumePoint
from epochal.engine.run.engine_run import Environment
from epochal.engine.state.run_state import collect_state
from epochal.errors import Place
from epochal.hooks.banner import (
    Banner,
    compact,
    describe_data,
    describe_device,
    describe_load,
    describe_model,
    describe_optimizer,
    describe_processes,
    draw,
    evaluated_splits,
)
from epochal.records.folder.checkpoint_manifests import CheckpointManifest
from epochal.testing import TinyModel, TinyTask, execute_run, short_options, tiny_run

CONFIG = {
    "tag": "tiny",
    "desc": "does dropout help?",
    "seed": 0,
    "optim": {"type": "AdamW", "lr": 0.001, "foreach": None},
    "hooks": [],
    "monitor": "+val/acc",
}


def announce(
    banner: Banner, caplog: pytest.LogCaptureFixture, **setting: Any
) -> list[logging.LogRecord]:
    run = tiny_run(banner, setting=Environment(**setting), options=short_options(for_="1st"))
    with caplog.at_level(logging.INFO, logger="epochal.hooks.banner"):
        execute_run(run)
    return [record for record in caplog.records if record.name == "epochal.hooks.banner"]


def test_the_log_has_a_line_for_each_fact(caplog: pytest.LogCaptureFixture) -> None:
    banner = Banner(num_defaults=12, source="tiny.yaml")
    folder = Path("runs", "tiny")
    records = announce(banner, caplog, tag="tiny", config=CONFIG, dir=folder)
    assert [record.getMessage() for record in records] == [
        "tiny",
        "does dropout help?",
        f"folder: {folder}",
        "device: cpu",
        f"torch: {torch.__version__}",
        "model: TinyModel, 15 parameters",
        "optim: SGD",
        "data: train 24 samples in 6 batches; val 24 samples in 6 batches; "
        "test 24 samples in 6 batches; predict 24 samples in 6 batches",
        "evaluate: val every 1st and at the end",
        "save: every 1st and at the end",
        "defaults: 12 values filled in; `epochal plan tiny.yaml` lists them",
        "config:",
        "  seed: 0",
        "  optim: {type: AdamW, lr: 0.001, foreach: null}",
        "  monitor: +val/acc",
    ]


def test_a_terminal_gets_one_table(caplog: pytest.LogCaptureFixture) -> None:
    records = announce(Banner(), caplog, tag="tiny", config=CONFIG)
    first, *others = (record.screen for record in records)  # type: ignore[attr-defined]
    assert first is not None
    assert others
    assert not any(others)


def test_a_run_without_facts_has_a_banner(caplog: pytest.LogCaptureFixture) -> None:
    lines = [record.getMessage() for record in announce(Banner(), caplog)]
    assert lines[0] == "untitled run"
    assert not any(line.startswith(("folder", "defaults", "config", "save")) for line in lines)


def test_the_shown_config_can_be_given(caplog: pytest.LogCaptureFixture) -> None:
    banner = Banner(config={"seed": 3})
    lines = [record.getMessage() for record in announce(banner, caplog, config=CONFIG)]
    assert lines[-2:] == ["config:", "  seed: 3"]


@pytest.mark.parametrize("width", [80, 120])
def test_the_banner_fits_the_terminal(width: int) -> None:
    screen = Screen(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    facts = {"folder": "runs/" + "very-long/" * 15, "torch": "2.13.0"}
    long_section = "optim: {" + ", ".join(f"option_{i}: {i}" for i in range(20)) + "}"
    screen.print(draw("tiny", "a purpose", facts, ["seed: 0", long_section]))
    lines = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[:2] == ["tiny", "a purpose"]
    assert all(len(line) <= width for line in lines)
    text = "".join(line.strip() for line in lines)
    assert "option_19: 19}" in text.replace(" " * 3, "")


@pytest.mark.parametrize(
    ("machine", "text"),
    [
        ({}, "cuda:0"),
        ({"name": "NVIDIA H200", "memory_bytes": 139 * 2**30}, "cuda:0, NVIDIA H200, 139 GiB"),
        (
            {
                "driver": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue",
                "cuda": "12.8",
            },
            "cuda:0, driver 550.54.15, cuda 12.8",
        ),
        ({"driver": None}, "cuda:0"),
    ],
)
def test_the_device_is_described_by_its_known_facts(machine: dict[str, Any], text: str) -> None:
    assert describe_device(torch.device("cuda:0"), machine) == text


def test_processes_that_share_nothing_are_said_to_be_separate_runs() -> None:
    second = read_rank_environment({"RANK": "1", "WORLD_SIZE": "2"})
    only = read_rank_environment({"RANK": "0", "WORLD_SIZE": "1"})
    assert describe_processes(2, second) == "2, which share each batch"
    assert describe_processes(1, second) == "rank 1 of 2, each a separate run that shares nothing"
    assert describe_processes(1, only) == describe_processes(1, None) == ""


def test_threads_on_a_busy_cpu_get_a_hint() -> None:
    cpu = torch.device("cpu")
    text = describe_load(cpu, 8, (17.3, 8))
    assert text.startswith("load 17 on 8 cores; small models may train many times faster with ")
    assert text.endswith("engine.num_threads=1 than with 8")
    for device, threads, average in ((cpu, 1, 17.3), (cpu, 8, 9.0), (torch.device("cuda"), 8, 99)):
        assert describe_load(device, threads, (average, 8)) == "", (device, threads, average)


def test_frozen_and_tied_parameters_are_counted_correctly() -> None:
    model = TinyModel()
    model.linear.weight.requires_grad_(False)
    model.tied = model.linear.bias
    assert describe_model(model) == "TinyModel, 15 parameters, 3 of them trained"


def test_loaders_of_unknown_size_are_named() -> None:
    class Stream(IterableDataset):  # type: ignore[type-arg]  # reason: torch's generic at run time
        def __iter__(self) -> Any:
            return iter([])

    task = TinyTask()
    task.train_loader = DataLoader(Stream())
    task.val_loader = {"a": task.test_loader, "b": [1, 2]}  # type: ignore[assignment]
    task.test_loader = task.predict_loader = None  # type: ignore[assignment]
    assert describe_data(tiny_run(task=task)) == (
        "train of unknown size; val/a 24 samples in 6 batches; val/b 2 batches"
    )


def test_a_count_of_one_is_singular(caplog: pytest.LogCaptureFixture) -> None:
    task = TinyTask(num_samples=1)
    task.val_loader = task.test_loader = task.predict_loader = None  # type: ignore[assignment]
    assert describe_data(tiny_run(task=task)) == "train 1 sample in 1 batch"
    assert describe_model(torch.nn.Linear(1, 1, bias=False)) == "Linear, 1 parameter"
    lines = [r.getMessage() for r in announce(Banner(num_defaults=1, source="a.yaml"), caplog)]
    assert "defaults: 1 value filled in; `epochal plan a.yaml` lists it" in lines


def test_a_lazy_model_counts_its_known_sizes() -> None:
    model = torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.Linear(4, 1))
    assert (
        describe_model(model) == "Sequential, 5 parameters; some sizes are set by the first batch"
    )


@pytest.mark.parametrize(
    ("runner", "weights", "expected"),
    [
        (
            {"type": "test", "split": "val"},
            "runs/a/x/checkpoints/final.safetensors",
            [
                f"of run: {Path('runs/a/x')}",
                "weights: runs/a/x/checkpoints/final.safetensors",
                "data: val 24 samples in 6 batches",
            ],
        ),
        ("predict", None, ["weights: as the model was built", "data: predict 24 samples in 6 bat"]),
    ],
)
def test_a_test_run_shows_its_weights_and_no_config(
    runner: object, weights: str | None, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    config = CONFIG | {"runner": runner, "init_from": weights}
    banner = Banner(num_defaults=12, source="tiny.yaml")
    lines = [record.getMessage() for record in announce(banner, caplog, tag="tiny", config=config)]
    assert all(any(line.startswith(start) for line in lines) for start in expected)
    assert not any(line.startswith(("config", "defaults", " ")) for line in lines)
    assert "device: cpu" in lines


def test_predict_without_its_own_loader_shows_the_test_loader() -> None:
    task = TinyTask()
    task.predict_loader = None  # type: ignore[assignment]
    run = tiny_run(task=task, setting=Environment(config={"runner": {"type": "predict"}}))
    assert evaluated_splits(run) == ("test",)


def test_secrets_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    config = {"tag": "key", "desc": "token=abcd1234", "task": {"password": "hunter22"}}
    records = announce(Banner(), caplog, tag="tiny", config=config)
    screen = Screen(file=io.StringIO(), width=200)
    screen.print(records[0].screen)  # type: ignore[attr-defined]  # what a terminal shows
    shown = screen.file.getvalue() + "".join(one.getMessage() for one in records)  # type: ignore[attr-defined]
    assert shown.count("token=<redacted>") == 2
    assert shown.count('{password: "<redacted>"}') == 2
    assert "hunter22" not in shown


def test_values_of_a_config_are_written_as_in_yaml() -> None:
    lines = compact({"a": {"x": True, "y": [1, 2.5], "z": "two: words", "w": "a b"}, "n": "1e-3"})
    assert lines == ['a: {x: true, y: [1, 2.5], z: "two: words", w: a b}', "n: 1e-3"]


def test_values_from_the_environment_are_shown_as_written() -> None:
    secret = Node("hunter2", Place("a.yaml"), template="${env:TOKEN}")
    tree = from_plain({"extra": {"user": "ada"}, "roots": [1, 2]})
    extra = Node({**tree.mapping["extra"].mapping, "token": secret}, Place("a.yaml"))
    shown = compact(Node({**tree.mapping, "extra": extra}, Place("a.yaml")))
    assert shown == ['extra: {user: ada, token: "${env:TOKEN}"}', "roots: [1, 2]"]


@pytest.mark.parametrize(("fused", "text"), [(True, "AdamW (fused)"), (None, "AdamW")])
def test_a_fused_optimizer_is_marked(fused: bool | None, text: str) -> None:
    optimizer = torch.optim.AdamW(TinyModel().parameters(), fused=fused)
    assert describe_optimizer(optimizer) == text
    assert describe_optimizer(None) == ""


def test_a_resumed_run_shows_its_checkpoint_and_changes(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    class Taking(Hook):
        state: dict[str, Any]

        def run_end(self, run: Run) -> None:
            taken = snapshot_to_host(collect_state(run))
            self.state = deserialize_state(taken.plain, taken.tensors)

    taking = Taking()
    execute_run(tiny_run(taking, options=short_options(for_="3st")))
    point = ResumePoint(
        state=taking.state,
        manifest=CheckpointManifest(path=tmp_path / "tiny-3", files={}, step=3),
        path=tmp_path,
    )

    def resume(for_: str) -> list[str]:
        facts = {"changed": ["train.for: 1 -> 2"]}
        run = tiny_run(
            Banner(num_defaults=3),
            setting=Environment(config=CONFIG, resume=point, facts=facts),
            options=short_options(for_=for_),
        )
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="epochal.hooks.banner"):
            execute_run(run)
        return [one.getMessage() for one in caplog.records if one.name == "epochal.hooks.banner"]

    lines = resume("4st")
    assert not [line for line in lines if line.startswith("nothing is left")]
    left = "nothing is left to train: max_steps was reached at step 3, epoch 0"
    assert left in resume("2st")
    assert left in resume("3st")
    assert "resumed: from tiny-3: step 3, epoch 0" in lines
    assert "changed: train.for: 1 -> 2" in lines
    assert not [line for line in lines if line.startswith(("config", "defaults", "  "))]
