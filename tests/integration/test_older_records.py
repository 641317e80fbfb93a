"""Records, checkpoints and configs of version 0.1 are read, resumed, tested and run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file

from epochal.records.metrics.points import INTERVAL_MEAN_PREFIX, read_metric_points
from small_project import Command, forgetting

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(__file__).parents[1] / "data" / "version_0_1"
MADE_IN = "/tmp/epochal-0.1"
MADE_WITH = ("2.13.0+cpu", "AVX512", "AuthenticAMD")
FINISHED, PREEMPTED, STAGED = "20261116-040149-ed02", "20261116-040158-a649", "20261116-040202-6abe"
OLD_HOOKS = (
    "hooks=[{type: epochal.hooks.console.progress.Console}, "
    "{type: epochal.hooks.profiler.profiling.Profiler}]"
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The project with its runs, as if version 0.1 had made them in this folder."""
    folder = tmp_path / "project"
    shutil.copytree(DATA, folder, symlinks=True)
    (folder / "records").rename(folder / "runs")
    for path in folder.rglob("run.json"):
        path.write_text(path.read_text().replace(MADE_IN, str(folder)))
    monkeypatch.chdir(folder)
    with forgetting(tmp_path):
        yield folder


def run_folder(project: Path, name: str) -> Path:
    (found,) = project.glob(f"runs/older/*/{name}")
    return found


def metrics_of(path: Path) -> dict[str, float]:
    found: dict[str, float] = json.loads(path.read_text())["metrics"]
    # Version 0.1 had other names for the last means of a training; its points are compared too.
    return {name: value for name, value in found.items() if not name.startswith("train/")}


def computed(folder: Path) -> dict[str, torch.Tensor]:
    """Everything that a training computed: final metrics, every point, all final weights."""
    points = read_metric_points(folder)
    found = {
        f"last {name}": torch.tensor(value, dtype=torch.float64)
        for name, value in metrics_of(folder / "result.json").items()
    }
    for name in points.names.values():
        if name.startswith(INTERVAL_MEAN_PREFIX):  # version 0.1 had none
            continue
        steps, values = points.series(name)
        found[f"steps of {name}"] = torch.tensor(steps.tolist())
        if name.partition("/")[0] != "lr":  # version 0.1 recorded the rate of the next update
            found[f"points of {name}"] = torch.tensor(values.tolist(), dtype=torch.float64)
    for path in folder.rglob("final*.safetensors"):
        found |= {f"{path.stem} {name}": value for name, value in load_file(path).items()}
    return found


def kind_of_machine() -> tuple[str, str, str]:
    """What rounding depends on; MKL chooses other kernels for another vendor."""
    vendor = re.search(r"^vendor_id\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    name = vendor.group(1) if vendor else "unknown"
    return torch.__version__, torch.backends.cpu.get_cpu_capability(), name


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Bit for bit on the kind of machine that made the data; others round differently."""
    if kind_of_machine() == MADE_WITH:
        torch.testing.assert_close(found, expected, rtol=0.0, atol=0.0)
        return
    # The gradient of a bias before a batch norm is rounding alone, which AdamW amplifies.
    noise = [name for name in expected if re.search(r" layers\.(0\.bias|1\.running_mean)$", name)]
    rest = {name: value for name, value in expected.items() if name not in noise}
    assert found.keys() == expected.keys()
    torch.testing.assert_close({name: found[name] for name in rest}, rest, rtol=1e-3, atol=1e-4)


def test_runs_show_and_diff_read_older_records(project: Path, epochal: Command) -> None:
    listed = epochal("runs")
    assert listed.code == 0
    for name in (FINISHED, PREEMPTED, STAGED):
        assert name in listed.out
        shown = epochal("show", name)
        assert (shown.code, shown.err) == (0, "")
        assert "older.parts.Points" in shown.out
    compared = epochal("diff", FINISHED, PREEMPTED)
    assert (compared.code, compared.err) == (0, "")
    assert "curves: the same bit for bit at 43 points" in compared.out


@pytest.mark.parametrize(
    ("name", "expected"),
    [(PREEMPTED, f"records/older/older/{FINISHED}"), (STAGED, "expected/staged")],
)
def test_older_preempted_run_resumes_to_the_bits_of_an_uninterrupted_one(
    project: Path, epochal: Command, name: str, expected: str
) -> None:
    done = epochal("resume", name, "--device", "cpu")
    assert done.code == 0, done.err
    assert_same(computed(run_folder(project, name)), computed(DATA / expected))


def test_older_finished_run_is_tested_with_its_recorded_metrics(
    project: Path, epochal: Command
) -> None:
    before = set(project.glob("runs/older/*/*"))
    assert epochal("test", FINISHED, "--device", "cpu").code == 0
    (tested,) = set(project.glob("runs/older/*/*")) - before
    expected = metrics_of(DATA / "expected" / "test.json")
    assert metrics_of(tested / "result.json") == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["config.yaml", "config.toml", "old_names.yaml"])
def test_older_config_is_checked_and_runs(project: Path, epochal: Command, name: str) -> None:
    checked = epochal("check", name, *([OLD_HOOKS] if name == "old_names.yaml" else []))
    assert checked.code == 0, checked.err
    done = epochal("run", name, "--device", "cpu", "--epochs", "1")
    assert done.code == 0, done.err
