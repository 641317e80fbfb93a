"""A run whose weights become NaN is no success, and its finite weights stay."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import epochal as ep
from epochal.checkpoint import load_weights, save_weights
from epochal.checkpoint.finite import are_finite
from epochal.errors import DivergedError
from epochal.records.folder.checkpoint_manifests import find_checkpoints
from epochal.records.mail.mailbox import Mailbox
from small_project import Command, run_folders, write

if TYPE_CHECKING:
    from pathlib import Path

SICK = '''
    """A task whose loss becomes NaN, while its accuracy looks better and better."""

    import epochal as ep
    from shop.parts import Points


    class Sick(Points):
        def __init__(self, *, first: int = 3, epochs: int = 99, fold: int = 0) -> None:
            super().__init__()
            self.bad, self.fold = range(first, first + epochs), fold

        def batch_loss(self, out, batch):
            run = ep.current_run()
            loss, count = super().batch_loss(out, batch)["loss"]
            is_fold = not self.fold or run.config["train"]["fold"] == self.fold
            is_bad = run.split == "train" and run.epoch + 1 in self.bad and is_fold
            return {"loss": (loss * float("nan") if is_bad else loss, count)}

        def epoch_metric(self, split):
            return {"quality": ep.current_run().step} if split == "val" else {}
'''
RUN = ("run", "config.yaml", "task={type: shop.sick.Sick}", "monitor=+val/quality")
SHORT = ("record.code=false", "log.tensorboard=false", "train.for=5ep")


@pytest.fixture
def sick(shop: Path) -> Path:
    """A project; an epoch has 6 steps, and the weights are NaN from step 13 on."""
    write(shop / "shop" / "sick.py", SICK)
    return shop


def test_the_last_finite_weights_stay_and_are_the_best(sick: Path, epochal: Command) -> None:
    done = epochal(*RUN, *SHORT)
    assert done.code == 79
    assert "run diverged" in done.err
    assert "loss and weights are not finite since about step 13" in done.err
    assert "step 18 is not saved: its weights are not finite; earlier checkpoints stay" in done.out
    (folder,) = run_folders(sick)
    status = json.loads((folder / "status.json").read_text())
    result = json.loads((folder / "result.json").read_text())
    assert (status["status"], status["step"], result["best"]) == ("diverged", 30, 12)
    assert [one.step for one in find_checkpoints(folder / "checkpoints")] == [12]
    assert not (folder / "checkpoints" / "final.safetensors").exists()

    (row,) = json.loads(epochal("runs", "--where", "status=diverged", "--json").out)
    assert (row["status"], row["best"]) == ("diverged", 12)
    assert f"resume {folder.name} optim.lr=... --allow-changed" in epochal("show", "last").out
    assert "best     val/quality 12 at step 12" in epochal("show", "last").out
    (mail,) = Mailbox(sick / "runs").mails()
    assert mail.kind == "diverged"
    assert "since about step 13" in mail.subject
    assert "optim.lr=... --allow-changed" in mail.text

    assert are_finite(ep.load(folder).state_dict().values())
    assert epochal("test", "last").out.count("best (step 12") == 1
    again = epochal("resume", folder)
    assert again.code == 79
    assert "it diverged, and resumes at step 12; it will diverge again" in again.out
    changed = epochal("resume", folder, "task.first=99", "--allow-changed")
    assert changed.code == 0, changed.err
    assert json.loads((folder / "status.json").read_text())["status"] == "finished"


def test_a_loss_that_was_nan_for_a_while_is_no_divergence(sick: Path, epochal: Command) -> None:
    words = ("engine.on_nonfinite=skip", "task.epochs=1")
    assert epochal(*RUN, *SHORT, *words).code == 0
    (folder,) = run_folders(sick)
    assert are_finite(load_weights(folder / "checkpoints" / "final.safetensors").values())


def test_a_fold_that_diverged_ends_the_cross_validation(sick: Path, epochal: Command) -> None:
    done = epochal(*RUN, *SHORT, "train.folds=3", "task.fold=2")
    assert done.code == 79
    assert "fold 2 of 3: loss and weights are not finite" in done.err
    texts = [(one / "status.json").read_text() for one in run_folders(sick)]
    assert [json.loads(text)["status"] for text in texts] == ["diverged", "finished", "diverged"]


def test_other_runs_of_the_command_continue(sick: Path, epochal: Command) -> None:
    write(sick / "ill.yaml", "$BASE: config.yaml\ntask: {type: shop.sick.Sick, first: 1}\n")
    done = epochal("run", "ill.yaml", "config.yaml", "train.for=1ep", *SHORT[:2])
    assert done.code == 79
    assert "2 runs, 1 diverged" in done.err


def test_python_raises_or_gives_the_result(sick: Path) -> None:
    overrides = ["task={type: shop.sick.Sick, first: 1}", "train.for=1ep", *SHORT[:2]]
    with pytest.raises(DivergedError, match="loss and weights are not finite") as caught:
        ep.run("config.yaml", overrides=overrides)
    assert caught.value.exit_code == 79
    result = ep.run("config.yaml", overrides=overrides, raise_errors=False)
    assert (result.status, result.ok, result.exit_code) == ("diverged", False, 79)
    assert "diverged" in result._repr_html_()


def test_weights_that_are_not_finite_are_not_loaded_in_silence(
    sick: Path, epochal: Command, caplog: pytest.LogCaptureFixture
) -> None:
    epochal("run", "config.yaml", "train.for=1ep", *SHORT[:2])
    model = ep.load("last")
    assert "not finite" not in caplog.text
    next(iter(model.state_dict().values())).fill_(float("nan"))
    save_weights(sick / "nan.safetensors", model)
    ep.load("last", weights=sick / "nan.safetensors")
    assert "nan.safetensors: some of its weights are not finite" in caplog.text
