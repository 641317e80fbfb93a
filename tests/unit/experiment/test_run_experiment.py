"""Tests of running an experiment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch

import epochal as ep
from epochal.errors import ConfigError, TaskError
from epochal.hooks.early_stopping import EarlyStopping
from looking import look
from small_project import run_folders, tree

if TYPE_CHECKING:
    from pathlib import Path


def status(folder: Path) -> dict[str, object]:
    values: dict[str, object] = json.loads((folder / "status.json").read_text())
    return values


def test_mistakes_of_the_config_leave_no_folder(shop: Path) -> None:
    before = tree(shop)
    experiment = ep.Experiment("config.yaml", overrides=["optim.lrr=1", "tagg=2"])
    result = experiment.fit(raise_errors=False)
    assert (result.status, result.reason, result.exit_code) == ("failed", "config", 78)
    assert "optim.lrr" in result.message
    assert "tagg" in result.message
    assert tree(shop) == before


def test_seeds_of_parts_do_not_depend_on_each_other(shop: Path) -> None:
    """A bigger task must not change the first weights of the model."""
    small, large = (
        look(lambda run: run.model.linear.weight.clone(), f"task.num_samples={samples}")
        for samples in (24, 48)
    )
    assert torch.equal(small, large)


def test_errors_are_raised_after_they_were_recorded_and_shown(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="tagg"):
        ep.run("config.yaml", overrides=["tagg=2"])
    assert capsys.readouterr().err == "", "the error itself says everything"
    with pytest.raises(TaskError, match="not a tensor"):
        ep.run("config.yaml", overrides=["task.type=shop.parts.FloatLoss"])
    assert "run failed: TaskError" in capsys.readouterr().err
    (folder,) = run_folders(shop)
    assert status(folder)["status"] == "failed"
    assert "Traceback" in (folder / "logs" / "run.log").read_text()


def test_the_step_is_recorded_when_an_error_is_raised(shop: Path) -> None:
    class Late(ep.Hook):
        def step_end(self, run: ep.Run) -> None:
            if run.step == 4:
                raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        ep.Experiment("config.yaml", hooks=[Late()]).fit()
    (folder,) = run_folders(shop)
    assert status(folder)["step"] == 4


def test_a_run_that_user_code_ends_by_sys_exit_has_failed(shop: Path) -> None:
    for no_file in (True, False):
        with pytest.raises(SystemExit, match="3"):
            ep.run("config.yaml", overrides=["hooks=[shop.parts.Leaving]"], no_file=no_file)
    (folder,) = run_folders(shop)
    assert (status(folder)["status"], status(folder)["step"]) == ("failed", 2)


def test_sys_exit_within_a_run_is_explained_and_never_a_success(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for changes in (["hooks.0.code=0"], ["hooks.0.code=0", "train.folds=2"]):
        hooks = "hooks=[{type: shop.parts.Leaving}]"
        with pytest.raises(SystemExit) as end:
            ep.run("config.yaml", overrides=[hooks, *changes])
        assert end.value.code == 1
        shown = capsys.readouterr().err
        assert "run failed: SystemExit" in shown
        assert "the code called sys.exit(0)" in shown
        assert "in step_end" in shown
    assert {status(folder)["status"] for folder in run_folders(shop)} == {"failed"}


def test_hooks_can_read_the_folders_of_the_record(shop: Path) -> None:
    def find(run: ep.Run) -> tuple[Path | None, Path | None]:
        return run.dir, run.checkpoint_dir

    folder, checkpoints = look(find, choices={"no_file": False})
    assert checkpoints.is_dir()
    assert checkpoints.parent == folder
    assert look(find) == (None, None)


def test_hooks_can_read_registry_device_and_console(shop: Path) -> None:
    def find(run: ep.Run) -> tuple[object, dict[str, object], object]:
        registry = run.registry
        hook = registry.load(registry.find("hook", "EarlyStopping"))
        return hook, run.device_facts, run.console

    found, facts, console = look(find)
    assert found is EarlyStopping
    assert facts["type"] == "cpu"
    assert facts["precision"] == "fp32"
    assert console is not None


def test_facts_of_the_run_are_recorded(shop: Path) -> None:
    result = ep.run("config.yaml", overrides=["seed=7", "optim.lr=0.2"], variant="long", desc="why")
    assert result.dir is not None
    facts = json.loads((result.dir / "run.json").read_text())
    expected = {
        "project": "store",
        "tag": "shop",
        "desc": "why",
        "seed": 7,
        "runner": "train",
        "variant": "long",
        "config_path": "config.yaml",
        "torch": torch.__version__,
        "project_dir": str(shop),
        "meta": {"classes": ["red", "green", "blue"]},
    }
    assert expected.items() <= facts.items()
    assert "optim.lr=0.2" in facts["overrides"]
    assert facts["device"]["device"] in ("cpu", "cuda:0")
    assert {"python", "packages", "cpu"} <= facts["machine"].keys()
    parts = {"start-up/checks", "start-up/record", "start-up/building", "start-up/first batch"}
    assert parts <= result.times.keys()
    assert result.seconds == sum(result.times.values())


def test_debug_logs_all_lines(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = ep.run("config.yaml", debug=True, fast=True, device="cpu")
    assert result.config["log"]["level"] == "debug"
    assert result.dir is not None
    assert "DEBUG" in (result.dir / "logs" / "run.log").read_text()
