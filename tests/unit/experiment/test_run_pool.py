"""``ep.run`` with devices gives the results of all configs in their order."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import epochal as ep
from epochal.errors import ConfigError
from epochal.launch.jobs.frozen_job import read_job
from pooled import ScriptedExecutor, ScriptedHandle

if TYPE_CHECKING:
    from epochal.launch.pool.executor import Executor, JobHandle, JobStart


class Writing(ScriptedExecutor):
    """Writes the record that the process of each job would write; the second is killed."""

    def submit(self, start: JobStart) -> JobHandle:
        number = int(start.file.stem)
        self.starts.append(start)
        if number == 2:
            return ScriptedHandle(-9)
        folder = start.job.log_dir / f"run{number}"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
        (folder / "status.json").write_text(json.dumps({"status": "finished"}))
        result = {"status": "finished", "reason": "max_epochs", "metrics": {"val/acc": number}}
        (folder / "result.json").write_text(json.dumps(result))
        start.run_file.write_text(str(folder))
        return ScriptedHandle(0)


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedExecutor:
    monkeypatch.setenv("EPOCHAL_LEASES_DIR", str(tmp_path / "leases" / "here"))
    made = Writing()

    def make(imports: object) -> Executor:
        return made

    monkeypatch.setattr("epochal.experiment.run_pool.LocalExecutor", make)
    return made


def test_results_are_in_the_order_of_the_configs(shop: Path, executor: ScriptedExecutor) -> None:
    results = ep.run(
        ["config.yaml", Path("config.yaml"), "config.yaml"], devices="cpu", per_device=3
    )
    assert [one.status for one in results] == ["finished", "failed", "finished"]
    assert [dict(one.metrics) for one in results] == [{"val/acc": 1}, {}, {"val/acc": 3}]
    assert results[1].message == "its process was killed by signal 9"
    assert results[1].exit_code == 137


def test_mappings_overrides_and_choices_reach_the_jobs(
    shop: Path, executor: ScriptedExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    submit = executor.submit

    def remember(start: JobStart) -> JobHandle:
        seen.append(read_job(start.file))
        return submit(start)

    monkeypatch.setattr(executor, "submit", remember)
    values = {
        "task": "shop.parts.Points",
        "model": {"type": "shop.parts.Net"},
        "optim": {"type": "SGD", "lr": 0.1},
        "train": {"for": "1ep"},
    }
    ep.run([values], devices=["cpu"], overrides=["optim.lr=0.3"], epochs=2, desc="why\n$nan")
    (job,) = seen
    assert job.source == values
    assert job.overrides == ("optim.lr=0.3",)
    assert job.choices == {"epochs": 2, "desc": "why\n$nan", "variant": None}


def test_what_a_pool_cannot_run_is_refused(shop: Path, executor: ScriptedExecutor) -> None:
    with pytest.raises(ConfigError, match="runs a list of configs"):
        ep.run("config.yaml", devices="cpu")
    with pytest.raises(ConfigError, match="not an object of type 'Namespace'"):
        ep.run([argparse.Namespace(x=1)], devices="cpu")
    with pytest.raises(ConfigError, match=r"optim\.lr"):
        ep.run(["config.yaml"], devices="cpu", overrides=["optim.lr=fast"])
    with pytest.raises(ConfigError, match="unknown device"):
        ep.run(["config.yaml"], devices="moon")
    assert executor.starts == []
