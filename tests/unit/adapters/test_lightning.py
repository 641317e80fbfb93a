"""Lightning's own demo model and modules of users, trained by Epochal and by Lightning."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import epochal as ep
from epochal.adapters.lightning import LightningExperiment, LightningTask, read_optimizers
from epochal.errors import TaskError
from forked import run

pl = pytest.importorskip("pytorch_lightning")
from pytorch_lightning.demos.boring_classes import BoringDataModule, BoringModel  # noqa: E402
from torchmetrics import MeanAbsoluteError  # noqa: E402

ON_CPU = {"device": "cpu", "no_file": True}


class Regression(pl.LightningModule):
    """Logs values, a metric object, and sums of its own."""

    def __init__(self, width: int = 1) -> None:
        super().__init__()
        self.net = nn.Linear(3, width)
        self.error = MeanAbsoluteError()
        self.called: list[str] = []

    def training_step(self, batch: Any) -> Any:
        loss = (self.net(batch[0]) - batch[1]).square().mean()
        self.log("train_loss", loss, prog_bar=True)
        self.log_dict({"train_twice": 2 * loss})
        return {"loss": loss}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        out = self.net(batch[0])
        self.error(out, batch[1])
        self.log("val_error", self.error)
        self.log("val/loss", (out - batch[1]).square().mean())

    def on_train_epoch_start(self) -> None:
        self.called.append(f"epoch {self.current_epoch} at {self.global_step}")

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.called.append(f"batch {batch_idx}")

    def on_validation_epoch_end(self) -> None:
        self.log("val_steps", self.trainer.global_step)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Points(pl.LightningDataModule):
    """Ten samples, of which four are validated."""

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(10, 3, generator=generator)
        self.train, self.val = (
            TensorDataset(part, part.sum(1, keepdim=True)) for part in (x[4:], x[:4])
        )

    def train_dataloader(self) -> Any:
        return DataLoader(self.train, batch_size=3)

    def val_dataloader(self) -> Any:
        return DataLoader(self.val, batch_size=3)


def fit(model: Any, data: Any, **sections: Any) -> ep.RunResult:
    task = LightningTask(data)
    return LightningExperiment(model=model, task=task, choices=ON_CPU, **sections).fit()


@pytest.mark.filterwarnings("ignore")  # those of Lightning's trainer
@pytest.mark.parametrize(("kind", "data"), [(BoringModel, BoringDataModule), (Regression, Points)])
def test_a_module_gets_the_weights_that_lightning_gives_it(kind: Any, data: Any) -> None:
    torch.manual_seed(0)
    ours, loaders = kind(), data()
    theirs = copy.deepcopy(ours)
    fit(ours, loaders, train={"for": "2ep"})
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(theirs, loaders)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)
    if kind is Regression:
        result = fit(ours, loaders, train={"for": "1ep"}).metrics
        trainer.validate(ours, loaders, verbose=False)
        logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
        assert result["val/error"] == pytest.approx(logged["val_error"])
        assert result["val/loss"] == pytest.approx(logged["val/loss"])


def test_methods_of_the_module_are_called_and_values_recorded() -> None:
    model = Regression()
    result = fit(model, Points(), train={"for": "2ep"})
    assert model.called == [
        "epoch 0 at 0",
        "batch 0",
        "batch 1",
        "epoch 1 at 2",
        "batch 0",
        "batch 1",
    ]
    assert {"val/error", "val/loss", "val/steps"} <= result.metrics.keys()
    assert result.metrics["val/steps"] == 4
    assert any(name.endswith("/twice") for name in result.metrics)


def test_configure_optimizers_can_read_the_length_of_the_training() -> None:
    class Planning(Regression):
        def configure_optimizers(self) -> Any:
            self.planned = tuple(getattr(self.trainer, name) for name in self.asked)
            return super().configure_optimizers()

    everything = ("estimated_stepping_batches", "num_training_batches", "max_epochs", "max_steps")
    for train, planned in (
        ({"for": "3ep"}, (6, 2, 3, -1)),
        ({"for": "5st"}, (5, 2, None, 5)),
        ({"for": "3ep", "limit_batches": 1}, (3, 1, 3, -1)),
    ):
        model = Planning()
        model.asked = everything
        assert fit(model, Points(), train=train).ok
        assert model.planned == planned, train
    for train, asked, message in (
        (
            {"for": "1h"},
            everything,
            "estimated_stepping_batches: unknown .*\n.*in steps or epochs",
        ),
        ({"for": "1ep"}, ["fit_loop"], "self.trainer.fit_loop: not available .*\n.*max_steps"),
    ):
        model = Planning()
        model.asked = asked
        with pytest.raises(TaskError, match=message):
            fit(model, Points(), train=train)


def test_a_logged_val_loss_can_be_monitored() -> None:
    class Returning(Regression):
        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            loss = (self.net(batch[0]) - batch[1]).square().mean()
            self.log("val_loss", loss)
            return loss

    class Unlogged(Regression):
        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            return {"loss": (self.net(batch[0]) - batch[1]).square().mean()}

    class AtTheEnd(Regression):
        def validation_step(self, batch: Any, batch_idx: int) -> None: ...
        def on_validation_epoch_end(self) -> None:
            self.log("val_loss", 3.0)

    found = []
    for kind in (Regression, Returning, Unlogged):
        torch.manual_seed(0)
        result = fit(kind(), Points(), train={"for": "1ep"}, monitor="-val/loss")
        assert result.best == result.metrics["val/loss"], kind
        found.append(result.best)
    assert found == [found[0]] * 3
    train = {"for": "1ep", "eval_loss": False}
    assert fit(AtTheEnd(), Points(), train=train, monitor="-val/loss").best == 3
    message = "AtTheEnd.validation_step: logged and returned no loss\n.*train.eval_loss=false"
    with pytest.raises(TaskError, match=message):
        fit(AtTheEnd(), Points(), train={"for": "1ep"}, monitor="-val/loss")


def test_the_section_optim_replaces_the_optimizer_of_the_module() -> None:
    torch.manual_seed(0)
    ours, theirs = (Regression() for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    fit(ours, Points(), train={"for": "1ep"}, optim={"type": "SGD", "lr": 0.0})
    assert torch.equal(ours.net.weight, theirs.net.weight)


def test_a_config_names_module_and_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(__file__).read_text().partition("\n\ndef fit")[0]
    (tmp_path / "lit.py").write_text(source)
    (tmp_path / "config.yaml").write_text(
        "experiment: epochal.adapters.lightning.LightningExperiment\n"
        "model: {type: lit.Regression, width: 1}\n"
        "task: {type: lightning, data: {type: lit.Points}}\n"
        "train: {for: 1ep}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert ep.run("config.yaml", device="cpu", no_file=True).steps == 2


def test_what_cannot_be_done_is_refused() -> None:
    class Manual(Regression):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

    class Clipping(Regression):
        def configure_gradient_clipping(self, *args: Any, **options: Any) -> None: ...

    class Curious(Regression):
        def training_step(self, batch: Any) -> Any:
            return self.trainer.max_steps

    for model, message in (
        (nn.Linear(3, 1), "Linear has no training_step\n.*write a task"),
        (Manual(), "Manual: manual optimization is not supported\n.*write a runner"),
        (Clipping(), "configure_gradient_clipping: nothing would call it\n.*set optim.clip"),
        (Curious(), "self.trainer.max_steps: not available in Epochal\n.*current_epoch"),
    ):
        with pytest.raises(TaskError, match=message):
            fit(model, Points(), train={"for": "1ep"}, optim={"type": "SGD", "lr": 0.1})


def test_every_form_of_configure_optimizers_is_understood() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    sgd = torch.optim.SGD([parameter], lr=0.1)
    step = torch.optim.lr_scheduler.StepLR(sgd, 1)

    class Returns:
        def __init__(self, value: object) -> None:
            self.configure_optimizers = lambda: value

    for value, unit in (
        (sgd, None),
        ([sgd], None),
        (([sgd], [step]), "epoch"),
        ({"optimizer": sgd}, None),
        ({"optimizer": sgd, "lr_scheduler": step}, "epoch"),
        ({"optimizer": sgd, "lr_scheduler": {"scheduler": step, "interval": "step"}}, "step"),
    ):
        optimizer, schedule = read_optimizers(Returns(value))
        assert optimizer is sgd, value
        assert getattr(schedule, "unit", None) == unit, value
    for value in (None, [sgd, sgd], ([sgd], [step, step])):
        with pytest.raises(TaskError, match=r"must return"):
            read_optimizers(Returns(value))


SHARED = """
import os
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchmetrics import MetricCollection, SumMetric


class Net(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        self.train_count, self.val_count = SumMetric(), MetricCollection([SumMetric()])

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch):
        assert self.trainer.world_size == int(os.environ.get("WORLD_SIZE", 1))
        assert self.global_rank == int(os.environ.get("RANK", 0))
        self.train_count(torch.tensor(float(len(batch))))
        self.log("train_count", self.train_count)
        return (self(batch) - batch.sum(1, keepdim=True)).square().mean()

    def on_train_epoch_end(self):
        self.log("train_steps", float(self.global_step))

    def validation_step(self, batch):
        self.log("val_size", self(batch).abs().mean())
        self.val_count(torch.tensor(float(len(batch))))
        self.log("val_count", self.val_count["SumMetric"])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Data(pl.LightningDataModule):
    def prepare_data(self):
        with open("prepared", "a") as file:
            file.write(os.environ.get("RANK", "0"))

    def train_dataloader(self):
        points = torch.randn(11, 3, generator=torch.Generator().manual_seed(0))
        return DataLoader(points, batch_size=4, shuffle=True)

    val_dataloader = train_dataloader
"""
SHARED_CONFIG = """
experiment: epochal.adapters.lightning.LightningExperiment
model: {type: shared.Net}
task: {type: lightning, data: {type: shared.Data}}
train: {for: 2ep}
log: {tensorboard: false}
"""


def test_module_trains_in_several_processes_as_in_one(tmp_path: Path) -> None:
    (tmp_path / "shared.py").write_text(SHARED)
    (tmp_path / "lit.yaml").write_text(SHARED_CONFIG)
    found = []
    for case, (nproc, strategy) in enumerate((("1", "auto"), ("2", "auto"), ("2", "fsdp"))):
        words = (f"record.log_dir=of{case}", f"engine.strategy={strategy}", "--nproc", nproc)
        done = run("-m", "epochal", "run", "lit.yaml", "--device", "cpu", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (tmp_path / "prepared").read_text() == "0" * (case + 1)  # one process loads files
        (record,) = (one.parent for one in tmp_path.glob(f"of{case}/*/*/*/result.json"))
        weights = load_file(record / "checkpoints" / "final.safetensors")
        found.append((weights, json.loads((record / "result.json").read_text())["metrics"]))
    (alone, metrics), *others = found
    assert [metrics[name] for name in ("train/epoch/count", "train/epoch/steps")] == [11, 6]
    assert {name for name in metrics if name.startswith("val/")} == {"val/size", "val/count"}
    assert metrics["val/count"] == 11
    for weights, other_metrics in others:
        for name, tensor in alone.items():
            torch.testing.assert_close(weights[name], tensor, atol=1e-6, rtol=1e-5)
        assert other_metrics == pytest.approx(metrics, rel=1e-5)
