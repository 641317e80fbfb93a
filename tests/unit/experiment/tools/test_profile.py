"""Tests of a few steps under the profiler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal.errors import RecordError, TaskError
from epochal.experiment.tools.profile import ProfileResult, profile_file
from epochal.hooks.profiler import Profiler
from small_project import tree

if TYPE_CHECKING:
    from epochal.engine import Run

CONFIG = Path("config.yaml")
PAIRWISE = """

class Pairwise(Net):
    def forward(self, x):
        if len(x) < 2:
            raise ValueError("pairs are needed")
        return super().forward(x)
"""


def profile(*overrides: str, out: str | None = None, steps: int = 3) -> ProfileResult:
    profiler = Profiler(wait=1, warmup=1, steps=steps)
    folder = None if out is None else Path(out)
    return profile_file(CONFIG, profiler, out=folder, overrides=overrides, device="cpu")


def test_only_the_trace_is_written(shop: Path) -> None:
    before = tree(shop)
    done = profile()
    assert done.profile is not None
    assert done.profile.steps == 3
    assert (done.result.reason, done.result.steps) == ("profiled", 5)
    left = {str(path) for path in tree(shop).keys() - before.keys()}
    files = {"model.txt", "table.txt", "trace.json.gz"}
    assert left == {"profile-shop"} | {f"profile-shop/{name}" for name in files}


def test_nothing_is_evaluated_and_no_monitor_is_missed_even_if_the_config_asks_for_it(
    shop: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(run: Run, split: str) -> dict[str, float]:
        raise AssertionError("evaluated")

    monkeypatch.setattr("epochal.engine.runner.evaluate", fail)
    for every in ("1st", "1ep", "auto"):
        asked = ("train.eval_at_start=true", "train.eval_at_end=true", "monitor=+val/acc")
        done = profile(f"train.eval_every={every}", *asked, out=every)
        assert done.result.ok
        assert "evaluation" not in done.result.times
    assert "never measured" not in caplog.text


def test_a_task_without_data_to_evaluate_is_profiled_too(shop: Path) -> None:
    added = "\n\nclass Unmeasured(Points):\n    def __init__(self):\n        super().__init__()\n"
    with (shop / "shop" / "parts.py").open("a", encoding="utf-8") as parts:
        parts.write(added + "        self.val_loader = None\n")
    assert profile("task.type=shop.parts.Unmeasured", "monitor=null").result.ok


def test_a_short_training_is_profiled_to_its_end(shop: Path) -> None:
    done = profile("train.for=4st", steps=10)
    assert done.profile is not None
    assert done.profile.steps == 2


def test_tags_become_names_of_folders(shop: Path) -> None:
    done = profile("tag=a/b c")
    assert done.profile is not None
    assert done.profile.dir == Path("profile-a-b-c")


def test_a_folder_that_exists_is_not_overwritten(shop: Path) -> None:
    for out in (None, "there"):
        profile(out=out)
        with pytest.raises(RecordError, match="exists already, and is not overwritten"):
            profile(out=out)


def test_a_runner_without_steps_is_refused(shop: Path) -> None:
    with pytest.raises(TaskError, match="takes no steps, so there is nothing to profile"):
        profile("runner=test")


def test_a_failed_run_has_no_profile(shop: Path) -> None:
    done = profile("task.type=shop.parts.FloatLoss")
    assert done.profile is None
    assert done.result.status == "failed"
    assert done.to_json()["status"] == "failed"


def test_the_model_summary_includes_the_state_of_the_optimizer(shop: Path) -> None:
    done = profile()
    assert done.model is not None
    assert done.model.model.kind == "Net"
    assert done.model.samples_per_step == 4
    assert done.model.memory_bytes["optimizer"] == done.model.memory_bytes["parameters"]
    lines = (shop / "profile-shop" / "model.txt").read_text().splitlines()
    assert lines == done.model.lines(rows=None)


def test_a_model_that_fails_on_one_sample_has_no_summary(
    shop: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = shop / "shop" / "parts.py"
    parts.write_text(parts.read_text() + PAIRWISE)
    done = profile("model.type=shop.parts.Pairwise")
    assert done.result.ok
    assert (done.model, done.to_json()["model"]) == (None, None)
    assert "a batch of one sample fails: pairs are needed" in caplog.text
    assert not (shop / "profile-shop" / "model.txt").exists()


def test_the_result_converts_to_plain_values(shop: Path) -> None:
    values = profile(out="there").to_json()
    assert values["tag"] == "shop"
    assert values["dir"] == "there"
    assert values["steps"] == 3
    assert values["advice"]
    assert values["model"]["parameters"] > 0
    assert set(values["shares"]) == {"data wait", "host"}
    assert {"name", "calls", "cpu_seconds", "device_seconds"} == set(values["operators"][0])
