"""The shipped examples and the template of new projects, at small size."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import epochal as ep
import forked
from epochal.check import check
from epochal.cli.verbs.new import write_project
from epochal.config import load
from epochal.records.folder.media import read_media
from small_project import command, forgetting, run_folders

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIGS = ["digits/digits.yaml", "digits/digits.toml", "charlm/charlm.yaml", "names/names.toml"]


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


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the example with chains of pipes, stages and train-and-test in TOML."""
    folder = tmp_path / "names"
    shutil.copytree(
        EXAMPLES / "names", folder, ignore=shutil.ignore_patterns("runs", "__pycache__")
    )
    monkeypatch.chdir(folder)
    with forgetting(folder):
        yield folder


def test_names_trains_tests_and_predicts_with_the_pipes_of_one_file(
    names: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = command(capsys)("run", "names.toml", "--then-test", "train.for=6ep", "--device", "cpu")
    assert done.code == 0, done.err
    trained, tested = map(ep.read, run_folders(names))

    # The file of each evaluation, the best one, and the page of examples.
    kept = sorted(path.name for path in (trained.path / "outputs").iterdir())
    passes = [f"val-{step:06}.jsonl" for step in (0, 12, 24, 36)]
    assert kept == ["best-val.jsonl", "best.json", *passes]
    best = json.loads((trained.path / "outputs" / "best.json").read_text())
    assert best["value"] == trained.result["best"] > 0.9
    pages = read_media(trained.path)
    assert [one.name for one in pages] == ["val/examples"] * 4
    assert "(person), " in pages[0].read_text()

    # The test config is derived: no optimizer, no keep_best, the best weights.
    assert [path.name for path in (tested.path / "outputs").iterdir()] == ["test-000000.jsonl"]
    assert "optim" not in tested.expanded
    assert tested.result["metrics"]["test/f1"] > 0.8
    assert [one.name for one in read_media(tested.path)] == ["test/examples"]

    (names / "new.jsonl").write_text('{"text": "Uma left"}\n{"text": "Ada moved to Oslo"}\n')
    options = {"overrides": ["data.predict.collate={type: pad, mask: mask}"], "device": "cpu"}
    ep.predict("last", input="new.jsonl", output="found.jsonl", **options)
    _, second = map(json.loads, Path("found.jsonl").read_text().splitlines())
    assert second["found"] == ["Ada (person)", "Oslo (place)"]


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
