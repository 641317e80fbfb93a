"""Tests of subclasses of Experiment: in the record, in a config, and used again later."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

import epochal as ep
import forked
from epochal.config import load
from epochal.errors import CheckpointError, ConfigError
from epochal.records import read_run
from epochal.testing import TinyModel
from small_project import run_folders, write

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import nn

    from small_project import Command

OWN = """
    import torch
    import epochal as ep
    from epochal.testing import TinyModel, TinyTask

    class Negative(TinyModel):
        def forward(self, x):
            return -super().forward(x)

    class Flipped(ep.Experiment):
        def build_model(self, assembly):
            model = super().build_model(assembly)
            model.__class__ = Negative  # the same weights, another network
            return model

    class Wide(ep.Experiment):
        @staticmethod
        def prepare_task(args):
            return TinyTask(num_samples=args.task.num_samples)

        @staticmethod
        def prepare_model(args):
            return TinyModel(dropout=args.model.dropout)

    class Needy(ep.Experiment):
        def __init__(self, config, depth):
            super().__init__(config)
"""
WIDE = """
    experiment: shop.own.Wide
    task: {num_samples: 16}
    model: {dropout: 0.25}
    optim: {type: SGD}
    train: {for: 1ep}
"""
SCRIPT = """
    import sys
    import epochal as ep
    from shop.own import Negative

    class Mine(ep.Experiment):
        def build_model(self, assembly):
            model = super().build_model(assembly)
            model.__class__ = Negative
            return model

    if GUARD:
        choices = {"device": "cpu", "resume": sys.argv[2] if sys.argv[2:] else None}
        Mine("config.yaml", overrides=[f"train.for={sys.argv[1]}ep"], choices=choices).fit()
"""


@pytest.fixture
def project(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small project, with experiments of its own."""
    monkeypatch.syspath_prepend(shop)
    write(shop / "shop" / "own.py", OWN)
    write(shop / "wide.yaml", WIDE)
    return shop


def own_class(name: str) -> Any:
    return getattr(import_module("shop.own"), name)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "checkpoints" / "final.safetensors")


def run_script(shop: Path, *words: str, guard: str = '__name__ == "__main__"') -> Path:
    write(shop / "train.py", SCRIPT.replace("GUARD", guard))
    done = forked.run("train.py", *words)
    assert done.returncode == 0, done.stderr
    return run_folders(shop)[-1]


def test_a_class_of_a_script_is_used_again_by_resume_test_and_predict(
    project: Path, epochal: Command
) -> None:
    whole = run_script(project, "2")
    first = run_script(project, "1")
    facts = json.loads((first / "run.json").read_text())["experiment"]
    assert (facts["class"], facts["steps"], facts["obstacle"]) == (
        "train.Mine",
        ["build_model"],
        "",
    )
    done = epochal("resume", "last", "train.for=2ep", "--device", "cpu")
    assert done.code == 0, done.err
    assert {name: value.tolist() for name, value in weights(first).items()} == {
        name: value.tolist() for name, value in weights(whole).items()
    }
    assert "class    train.Mine (overrides build_model)" in epochal("show", first).out
    for verb in ("test", "predict"):
        done = epochal(verb, first, "--device", "cpu")
        assert done.code == 0, done.err
        assert "model: Negative" in done.out


def test_a_script_without_a_guard_is_named_instead_of_another_model_being_trained(
    project: Path, epochal: Command
) -> None:
    folder = run_script(project, "1", guard="True")
    for verb, hint in (
        ("resume", "run train.py with Mine(..., choices={'resume': "),
        ("test", "shop-6').test()"),
        ("predict", "shop-6').predict()"),
    ):
        done = epochal(verb, "last")
        assert done.code == 74, verb
        assert f"its config alone cannot {verb} it" in done.err
        assert "its experiment is Mine, which overrides build_model" in done.err
        assert 'lacks `if __name__ == "__main__":`' in done.err
        assert hint in done.err
    assert len(run_folders(project)) == 1
    done = epochal("resume", folder, "train.for=2ep")
    assert done.code == 74
    assert run_script(project, "2", str(folder), guard="True") == folder
    assert read_run(folder).summary.epoch == 2


def test_what_a_script_sets_only_when_it_is_started_keeps_its_class_from_being_imported(
    tmp_path: Path,
) -> None:
    from epochal.experiment.config.experiment_class import _find_script_obstacle

    guard = "if __name__ == '__main__':\n "
    script = tmp_path / "train.py"
    for text, why in {
        f"class A:\n def build(self): return n\nn = 1\n{guard}n = 2": "build reads n",
        f"def main():\n global n\n n = 2\ndef f(): return n\n{guard}main()": "f reads n",
        "class A: pass": "it lacks `if __name__",
        "class A(": "cannot be read",
        f"class A:\n def build(self, args): return args\n{guard}args = 1": "",
        f"width = 1\ndef f(): return width\n{guard}f()": "",
    }.items():
        script.write_text(text)
        found = _find_script_obstacle(script)
        assert (why in found) if why else not found, text


def test_why_a_class_cannot_be_used_again_is_said(project: Path) -> None:
    choices: Any = {"fast": True, "device": "cpu", "raise_errors": True}

    class Local(ep.Experiment):
        def build_model(self, assembly: Any) -> nn.Module:
            return TinyModel()

    changed = own_class("Flipped")("config.yaml", choices=choices)
    changed.depth = 3
    made = own_class("Flipped")
    methods = {"fit": lambda self: ep.Experiment.fit(self)}
    cases = {
        "inside a function": Local("config.yaml", choices=choices),
        "attributes that no config has: depth": changed,
        "it overrides fit": type("Fits", (made,), methods)("config.yaml", choices=choices),
        "its own __init__": type(
            "Begins", (made,), {"__init__": lambda self, c: made.__init__(self, c, choices=choices)}
        )("config.yaml"),
        "not in the project's folder": type("Lost", (made,), {})("config.yaml", choices=choices),
    }
    for why, experiment in cases.items():
        result = experiment.run()
        with pytest.raises(CheckpointError, match=why):
            ep.resume(result.dir, overrides=["train.for=3ep"])


def test_a_resumed_run_needs_the_class_that_it_began_with(project: Path) -> None:
    def fit(kind: type[ep.Experiment], length: int, **choices: Any) -> ep.RunResult:
        choices |= {"device": "cpu", "raise_errors": True}
        return kind("config.yaml", train={"for": f"{length}ep"}, choices=choices).fit()  # type: ignore[arg-type]

    class Local(ep.Experiment):
        def build_model(self, assembly: Any) -> nn.Module:
            return super().build_model(assembly)

    first = fit(own_class("Flipped"), 1)
    with pytest.raises(ConfigError, match=r"experiment: 'shop.own.Flipped' -> None"):
        fit(ep.Experiment, 2, resume=first.dir)
    assert fit(own_class("Flipped"), 2, resume=first.dir).epochs == 2
    second = fit(Local, 1)
    with pytest.raises(ConfigError, match=r"experiment, class: 'Local' -> None"):
        fit(ep.Experiment, 2, resume=second.dir)
    assert fit(Local, 2, resume=second.dir).epochs == 2


def test_a_config_can_name_the_class(project: Path, epochal: Command) -> None:
    assert epochal("check", "wide.yaml").code == 0
    done = epochal("run", "wide.yaml", "--device", "cpu")
    assert done.code == 0, done.err
    assert "train 16 samples" in done.out
    assert epochal("plan", "wide.yaml", "--device", "cpu").code == 0
    mistakes = {
        "experiment=shop.own.Wid": "did you mean 'shop.own.Wide'?",
        "experiment=shop.parts.Net": "shop.parts.Net is not a subclass of epochal.Experiment",
        "experiment=Wide": "'Wide' is not a dotted path",
        "experiment=3": "expected text or null, got 3",
        "experiment=null": "model: the model has no type",
    }
    for override, message in mistakes.items():
        done = epochal("check", "wide.yaml", override)
        assert done.code == 78, override
        assert message in done.err, override
    done = epochal("run", "wide.yaml", "experiment=shop.own.Needy")
    assert done.code == 78
    with pytest.raises(ConfigError, match=r"call Wide\(...\) instead, or ep.run"):
        ep.Experiment("wide.yaml")


def test_a_class_that_a_config_cannot_make_or_import_is_refused(project: Path) -> None:
    write(project / "shop" / "torn.py", "import missing_module\nclass Torn: pass\n")
    write(project / "shop" / "leaving.py", "import sys\nsys.exit(2)\nclass Leaving: pass\n")
    config = load(project / "config.yaml").root.to_plain()
    for name, why in (
        (
            "shop.own.Needy",
            "shop.own.Needy cannot be created from a config alone: missing a required",
        ),
        ("shop.torn.Torn", "cannot be imported: ModuleNotFoundError: No module named 'missing_mod"),
        ("shop.leaving.Leaving", "cannot be imported: SystemExit: 2"),
        ("shop.parts.Net", "shop.parts.Net is not a subclass of epochal.Experiment"),
    ):
        with pytest.raises(ConfigError, match=why):
            ep.run({**config, "experiment": name}, no_file=True, raise_errors=True)


def test_values_that_prepare_methods_read_are_recorded_searched_and_compared(
    project: Path, epochal: Command
) -> None:
    result = own_class("Wide")("wide.yaml", choices={"device": "cpu"}).fit()
    assert result.ok, result.traceback
    assert result.config["model"] == {"dropout": 0.25}
    record = read_run(result.dir)
    assert record.expanded["task"] == {"num_samples": 16}
    assert record.expanded["experiment"] == "shop.own.Wide"
    assert record.run["given"] == []
    (folder,) = run_folders(project)
    assert folder.name in epochal("runs", "--where", "model.dropout = 0.25").out
    assert folder.name not in epochal("runs", "--where", "model.dropout = 0.5").out
    assert "set in wide.yaml:3:18" in epochal("show", "last", "--explain", "model.dropout").out
    done = epochal("resume", "last", "train.for=2ep", "task.num_samples=24")
    assert done.code == 78
    assert "task.num_samples: 16 -> 24" in done.err
    done = epochal("resume", "last", "train.for=2ep", "--device", "cpu")
    assert done.code == 0, done.err


def test_an_own_build_step_may_read_a_section_without_type(project: Path) -> None:
    class Own(ep.Experiment):
        def build_model(self, assembly: Any) -> nn.Module:
            return TinyModel(dropout=assembly.args.model.dropout)

    base = load("config.yaml").root.to_plain()
    choices: Any = {"device": "cpu", "fast": True, "raise_errors": True}
    result = Own({**base, "model": {"dropout": 0.5}}, choices=choices).fit()
    assert result.config["model"] == {"dropout": 0.5}
    record = read_run(result.dir)
    assert (record.run["given"], record.run["experiment"]["steps"]) == ([], ["build_model"])


def test_folds_use_the_class_too(project: Path, epochal: Command) -> None:
    done = epochal("run", "wide.yaml", "train.folds=2", "--device", "cpu", "--fast")
    assert done.code == 0, done.err
    facts = [json.loads((one / "run.json").read_text()) for one in run_folders(project)]
    assert {one["experiment"]["class"] for one in facts} == {"shop.own.Wide"}
