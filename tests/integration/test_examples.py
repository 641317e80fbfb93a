"""The shipped examples and the template of new projects, at small size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import epochal as ep
import forked
from epochal.check import check
from epochal.cli.verbs.new import write_project
from epochal.config import load

EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIGS = ["digits/digits.yaml", "digits/digits.toml", "charlm/charlm.yaml"]


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the examples; they write to a temporary folder."""
    monkeypatch.chdir(tmp_path)
    return EXAMPLES


def problems_of(path: Path, variant: str | None = None) -> list[str]:
    config = load(path, variant=variant)
    report = check(config)
    return [str(problem) for problem in report.problems]


def expanded(path: Path, variant: str | None) -> object:
    config = load(path, variant=variant)
    return check(config).expanded.to_plain()


def epochal(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return forked.run("-m", "epochal", *words, cwd=folder)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_variant_of_an_example_is_free_of_mistakes(name: str) -> None:
    path = EXAMPLES / name
    for variant in (None, *load(path).variants):
        assert problems_of(path, variant) == []


@pytest.mark.parametrize("variant", [None, "wide", "conv"])
def test_digits_in_yaml_and_toml_are_the_same_experiment(variant: str | None) -> None:
    folder = EXAMPLES / "digits"
    assert expanded(folder / "digits.yaml", variant) == expanded(folder / "digits.toml", variant)


@pytest.mark.parametrize("variant", [None, "wide", "conv"])
def test_digits_runs_a_few_steps(examples: Path, variant: str | None) -> None:
    result = ep.run(examples / "digits" / "digits.yaml", variant=variant, fast=True)
    assert result.ok, result.traceback
    assert result.steps == 3
    assert {"train/epoch/loss", "val/acc"} <= result.metrics.keys()


def test_digits_reaches_its_accuracy(examples: Path) -> None:
    result = ep.run(examples / "digits" / "digits.yaml", device="cpu", no_file=True)
    assert result.ok, result.traceback
    assert result.best is not None
    assert result.best >= 0.95


def test_charlm_learns_and_writes_samples(examples: Path) -> None:
    result = ep.run(examples / "charlm" / "charlm.yaml", variant="tiny", device="cpu")
    assert result.ok, result.traceback
    assert result.steps == 20
    assert result.metrics["val/bpc"] < 8  # better than uniform guessing
    assert result.metrics["val/loss"] == pytest.approx(result.metrics["val/bpc"] * 0.6931, rel=1e-3)
    assert result.dir is not None
    assert (result.dir / "media" / "sample-20.txt").read_text(encoding="utf-8").startswith("def ")


def test_charlm_gives_the_same_numbers_twice(examples: Path) -> None:
    results = [
        ep.run(examples / "charlm" / "charlm.yaml", variant="tiny", device="cpu", no_file=True)
        for _ in range(2)
    ]
    assert results[0].metrics["val/bpc"] == results[1].metrics["val/bpc"]


def test_charlm_never_looks_ahead() -> None:
    spec = {"type": "charlm.model.Gpt", "layers": 2, "width": 32, "heads": 2, "context": 16}
    model = ep.build(spec, kind="model", project_dir=EXAMPLES / "charlm").eval()
    tokens = torch.randint(256, (1, 16), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[0, 10] = (changed[0, 10] + 1) % 256
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :10], after[:, :10])
    assert not torch.equal(before[:, 10:], after[:, 10:])


def test_charlm_targets_are_the_next_characters() -> None:
    spec = {"type": "charlm.task.CharLm", "max_bytes": 5000, "val_bytes": 500, "context": 8}
    task = ep.build(spec, kind="task", project_dir=EXAMPLES / "charlm")
    batch = next(iter(task.val_loader))
    assert batch["tokens"].shape == batch["targets"].shape == (32, 8)
    assert torch.equal(batch["tokens"][:, 1:], batch["targets"][:, :-1])


def test_charlm_refuses_an_empty_training_split() -> None:
    spec = {"type": "charlm.task.CharLm", "max_bytes": 5000, "val_bytes": 5000}
    with pytest.raises(ValueError, match="val_bytes=5000 leaves nothing of 5000 to train on"):
        ep.build(spec, kind="task", project_dir=EXAMPLES / "charlm")


@pytest.mark.parametrize("name", ["Mlp", "Conv"])
def test_digits_models_give_ten_scores_per_scan(name: str) -> None:
    model = ep.build(
        {"type": f"digits.model.{name}"}, kind="model", project_dir=EXAMPLES / "digits"
    )
    assert model(torch.zeros(3, 1, 8, 8)).shape == (3, 10)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project that ``epochal new my-project`` writes."""
    target = tmp_path / "my-project"
    write_project(target)
    return target


def test_template_leaves_no_placeholder(project: Path) -> None:
    for path in project.rglob("*"):
        assert "{{" not in path.name
        assert not path.is_file() or "{{" not in path.read_text(encoding="utf-8")
    assert (project / ".gitignore").exists()
    assert (project / "my_project" / "task.py").exists()


def test_template_is_free_of_mistakes(project: Path) -> None:
    path = project / "config.yaml"
    for variant in (None, *load(path).variants):
        assert problems_of(path, variant) == []


def test_template_runs_from_the_command_line(project: Path) -> None:
    done = epochal("run", "config.yaml", "--fast", "--device", "cpu", folder=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(project.glob("runs/my-project/my-project/*/result.json"))


def test_template_learns_the_spirals(project: Path) -> None:
    result = ep.run(project / "config.yaml", device="cpu", no_file=True)
    assert result.ok, result.traceback
    assert result.best is not None
    assert result.best >= 0.9


def test_tests_of_the_template_pass(project: Path) -> None:
    done = forked.run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr


def test_template_satisfies_our_own_linter(project: Path) -> None:
    rules = Path(__file__).parents[2] / "pyproject.toml"
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--config", str(rules), "--ignore", "I", "."],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
