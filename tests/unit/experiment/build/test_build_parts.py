"""Tests of the single build steps, through the runs that they make."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import epochal as ep
from epochal.checkpoint import load_weights
from epochal.components.average import Ema
from epochal.errors import ConfigError
from epochal.records.folder.media import read_media
from epochal.testing import TinyModel, TinyTask
from looking import Look, look
from small_project import write

if TYPE_CHECKING:
    from pathlib import Path


FED = (
    "task={type: shop.parts.Fed}",
    "data.train={type: shop.parts.Rows, size: 10, batch_size: 5}",
    "data.val={type: shop.parts.Rows, batch_size: 2}",
)


def test_loaders_of_the_config_reach_the_task(shop: Path) -> None:
    def find(run: ep.Run) -> list[int]:
        return [len(run.task.train_loader), len(run.task.val_loader)]

    assert look(find, *FED) == [2, 4]


def test_split_may_have_several_named_loaders_and_another_name(shop: Path) -> None:
    def find(run: ep.Run) -> list[str]:
        return list(run.task.val_loader)

    named = "data.dev={day: {type: shop.parts.Rows}, night: {type: shop.parts.Rows, size: 3}}"
    found = look(find, *FED[:2], named, "monitor=+val/day/acc")
    assert found == ["day", "night"]


def test_debug_reads_data_in_this_process(shop: Path) -> None:
    def find(run: ep.Run) -> list[int]:
        return [run.task.train_loader.num_workers, run.task.val_loader.num_workers]

    workers = "data.train={type: shop.parts.Rows, workers: 2}"
    choices = {"debug": True}
    assert look(find, FED[0], workers, FED[2], choices=choices) == [0, 0]


def test_debug_applies_to_loaders_that_the_task_made(shop: Path) -> None:
    write(
        shop / "shop" / "busy.py",
        """
        from torch.utils.data import DataLoader
        from shop.parts import Points
        class Busy(Points):
            def __init__(self):
                super().__init__()
                data = self.train_loader.dataset
                self.train_loader = DataLoader(
                    data, batch_size=4, num_workers=2, prefetch_factor=2, persistent_workers=True
                )
        """,
    )
    find = lambda run: run.task.train_loader.num_workers  # noqa: E731 - as short as it can be
    assert look(find, "task.type=shop.busy.Busy", choices={"debug": True}) == 0


def test_a_loader_of_both_task_and_config_is_refused(shop: Path) -> None:
    result = ep.run("config.yaml", overrides=[FED[1]], no_file=True, raise_errors=False)
    assert result.exit_code == 78
    assert "Points sets train_loader already" in result.message


def test_dtype_of_the_model_is_that_of_the_batches_too(shop: Path) -> None:
    seen: list[torch.dtype] = []

    class Task(TinyTask):
        def batch_loss(self, out: Any, batch: Any) -> Any:
            seen.extend([batch["x"].dtype, out["logits"].dtype, batch["label"].dtype])
            return super().batch_loss(out, batch)

    for dtype in (torch.float32, torch.float64):
        seen.clear()
        found = look(
            lambda run: {p.dtype for p in run.model.parameters()},
            f"model.dtype={str(dtype).removeprefix('torch.')}",
            "task=$delete",
            task=Task(),
        )
        assert found == {dtype}
        assert set(seen) == {dtype, torch.int64}


@pytest.fixture
def weights(shop: Path) -> Path:
    """The final weights of a run."""
    first = ep.run("config.yaml")
    assert first.dir is not None
    return first.dir / "checkpoints" / "final.safetensors"


def copy_weights(run: ep.Run) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in run.model.state_dict().items()}


def test_first_weights_come_from_a_file(weights: Path) -> None:
    found = look(copy_weights, f"init_from={weights}")
    saved = load_weights(weights)
    assert all(torch.equal(found[name], saved[name]) for name in saved)


def test_missing_first_weights_never_mean_a_fresh_start(shop: Path) -> None:
    result = ep.run("config.yaml", overrides=["init_from=gone.safetensors"], raise_errors=False)
    assert (result.status, result.steps) == ("failed", 0)
    assert "no such file" in result.message
    assert "gone.safetensors" in result.message


def test_first_weights_of_another_model_are_refused(weights: Path) -> None:
    model = {"type": "torch.nn.Linear", "in_features": 4, "out_features": 3}
    other = [f"init_from={weights}", f"model={json.dumps(model)}"]
    result = ep.run("config.yaml", overrides=other, raise_errors=False)
    assert result.exception_type == "CheckpointError"
    assert "weight" in result.message


def test_metrics_take_name_and_splits_from_their_section(shop: Path) -> None:
    metrics = "metrics=[{type: mean, inputs: {value: out.logits}, name: height, on: [dev]}]"
    assert look(lambda run: {n: m.on for n, m in run.metrics.items()}, metrics) == {
        "height": ("val",)
    }


def test_metrics_may_be_of_torchmetrics_functions_and_classes(shop: Path) -> None:
    write(
        shop / "shop" / "measures.py",
        """
        import epochal as ep

        def spread(logits, *, scale: float = 1.0):
            return scale * logits.std()

        class Largest(ep.Metric):
            def reset(self): self.value = 0.0
            def update(self, logits): self.value = max(self.value, float(logits.max()))
            def compute(self): return self.value
        """,
    )
    entries = [
        {"type": "torchmetrics.Accuracy", "task": "multiclass", "num_classes": 3, "name": "tm"},
        {"type": "accuracy", "inputs": {"logits": "out.logits", "target": "batch.label"}},
        {"type": "shop.measures.spread", "scale": 0.0, "on": ["val", "train"]},
        {"type": "shop.measures.Largest"},
        {"type": "torch.nn.CrossEntropyLoss", "name": "ce"},
    ]
    overrides = [f"metrics={json.dumps(entries)}", "train.eval_loss=true"]
    values = ep.run("config.yaml", overrides=overrides, no_file=True, raise_errors=True).metrics
    assert values["val/tm"] == pytest.approx(values["val/accuracy"])
    assert values["val/tm"] == pytest.approx(values["val/acc"])
    assert values["val/spread"] == values["train/epoch/spread"] == 0.0
    assert values["val/ce"] == pytest.approx(values["val/loss"])
    assert "val/largest" in values


def test_metrics_of_torchmetrics_have_short_names_and_matrices_are_tables(shop: Path) -> None:
    entries = [
        {"type": "MulticlassF1Score", "num_classes": 3, "average": "micro"},
        {"type": "confusion_matrix"},
        {"type": "MulticlassConfusionMatrix", "num_classes": 3, "name": "theirs", "on": ["train"]},
    ]
    result = ep.run("config.yaml", overrides=[f"metrics={json.dumps(entries)}"], raise_errors=True)
    assert result.metrics["val/MulticlassF1Score"] == pytest.approx(result.metrics["val/acc"])
    tables = [one for one in read_media(result.dir) if one.kind == "table"]
    assert {one.name for one in tables} == {"val/confusion_matrix", "train/theirs"}
    for table in tables:
        title, *rows = table.iter_rows()
        assert title == ["", "red", "green", "blue"], table
        assert [row[0] for row in rows] == ["red", "green", "blue"], table
        assert sum(float(cell) for row in rows for cell in row[1:]) == 24, table


def test_two_metrics_of_one_name_are_refused(shop: Path) -> None:
    two = "metrics=[{type: mean}, {type: mean, inputs: {value: batch.x}}]"
    result = ep.run("config.yaml", overrides=[two], no_file=True, raise_errors=False)
    assert result.exit_code == 78
    assert "two metrics are called 'mean'" in result.message
    assert "name:" in result.message


def test_hooks_take_priority_splits_and_period_from_their_section(shop: Path) -> None:
    stopping = "hooks=[{type: EarlyStopping, patience: 2, priority: 7, on: [val]}]"

    class Experiment(ep.Experiment):
        def build_hooks(self, assembly: Any) -> list[object]:
            self.built: list[Any] = super().build_hooks(assembly)
            return list(self.built)

    own = Experiment("config.yaml", overrides=[stopping], choices={"no_file": True, "fast": True})
    assert own.fit().ok
    assert (own.built[0].priority, own.built[0].on) == (7, ("val",))


def test_a_task_object_can_be_used_again_with_the_loaders_of_the_experiment() -> None:
    class Bare(TinyTask):
        def __init__(self) -> None:
            super().__init__()
            self.kept = self.train_loader
            self.train_loader = self.val_loader = self.test_loader = None

    task = Bare()
    experiment = ep.Experiment(
        task=task,
        model=TinyModel(),
        optim={"type": "SGD"},
        train={"for": "1ep"},
        data={"train": task.kept, "test": task.kept},
        choices={"no_file": True, "device": "cpu"},
    )
    assert [experiment.fit().status, experiment.test().status] == ["finished", "finished"]


def test_fp64_is_the_number_format_of_weights_and_batches(shop: Path) -> None:
    def find(run: ep.Run) -> tuple[torch.dtype, torch.dtype | None]:
        return next(run.model.parameters()).dtype, run.dtype

    assert look(find, "engine.precision=fp64") == (torch.float64, torch.float64)
    assert look(find, "engine.precision=fp64", "model.dtype=float64")[0] == torch.float64
    assert look(find, "engine.precision=bf16")[0] == torch.float32


def test_number_and_memory_format_apply_to_a_model_given_as_an_object() -> None:
    model = TinyModel()
    model.conv = nn.Conv2d(3, 4, 2)
    experiment = ep.Experiment(
        task=TinyTask(),
        model=model,
        optim={"type": "SGD"},
        engine={"precision": "fp64", "channels_last": True},
        choices={"no_file": True, "fast": True, "device": "cpu"},
    )
    assert experiment.fit().ok
    assert next(model.parameters()).dtype == torch.float64
    assert model.conv.weight.is_contiguous(memory_format=torch.channels_last)


def test_an_average_comes_from_the_config_or_as_an_object(shop: Path) -> None:
    def find(run: ep.Run) -> Any:
        return run.average

    assert look(find) is None
    assert look(find, "average={type: ema, decay: 0.9}").decay == 0.9
    given = Ema(decay=0.5)
    assert look(find, "average={type: ema}", average=given) is given


def test_a_test_needs_no_average(shop: Path) -> None:
    overrides, choices = ["average={type: ema}"], {"no_file": True}
    result = ep.Experiment("config.yaml", overrides=overrides, choices=choices).test()
    assert result.ok
    assert not any("ema" in name for name in result.metrics)


def test_averaged_weights_are_kept_in_the_record(shop: Path) -> None:
    result = ep.run("config.yaml", overrides=["average={type: ema}"], device="cpu")
    assert result.dir is not None
    own = load_weights(result.dir / "checkpoints" / "final.safetensors")
    averaged = load_weights(result.dir / "checkpoints" / "final-ema.safetensors")
    assert own.keys() == averaged.keys()
    observed = json.loads((result.dir / "config" / "observed.json").read_text())
    assert observed["average"]["arguments"] == {"decay": 0.999, "warmup": False, "every": None}


def test_first_weights_of_a_run_may_leave_parts_out(weights: Path) -> None:
    run_dir = str(weights.parents[1])
    options = json.dumps({"path": run_dir, "exclude": ["*bias"], "strict": False})
    found = look(copy_weights, f"init_from={options}")
    saved = load_weights(weights)
    assert torch.equal(found["linear.weight"], saved["linear.weight"])
    assert not torch.equal(found["linear.bias"], saved["linear.bias"])


def test_dtype_of_the_config_holds_for_models_that_python_made(shop: Path) -> None:
    class Own(ep.Experiment):
        @staticmethod
        def prepare_model(args: ep.Args) -> nn.Module:
            return TinyModel()

    def find(run: ep.Run) -> tuple[torch.dtype, torch.dtype | None]:
        return next(run.model.parameters()).dtype, run.dtype

    double, change = (torch.float64, torch.float64), "model.dtype=float64"
    assert look(find, change, kind=Own) == double
    assert look(find, change, model=TinyModel()) == double
    assert look(find, model=TinyModel()) == (torch.float32, None)
    with pytest.raises(ConfigError, match=r"half precision is engine\.precision"):
        look(find, "model.dtype=float16", kind=Own)


def test_training_of_half_precision_weights_is_refused() -> None:
    given: Any = {"task": TinyTask(), "optim": {"type": "SGD"}, "choices": {"no_file": True}}
    with pytest.raises(ConfigError, match=r"'linear\.weight' are float16"):
        ep.Experiment(model=TinyModel().half(), **given).fit()


def test_a_function_of_the_run_can_be_named_among_the_hooks(shop: Path) -> None:
    write(
        shop / "shop" / "wares.py",
        """
        import epochal as ep

        def remember(run: ep.Run, amount: float = 1.0) -> None:
            run.register_caches({"amount": amount})

        class Quiet(ep.Hook):
            def run_end(self, run): ...

        def make(patience: int = 2):
            return Quiet()
        """,
    )
    for hooks, expected in (
        ("[shop.wares.remember]", {"amount": 1.0}),
        ("[{type: shop.wares.remember, amount: 3, priority: 10}]", {"amount": 3.0}),
        ("[{type: shop.wares.make, patience: 1}]", {}),
    ):
        found = Look(lambda run: dict(run.caches))
        choices: Any = {"no_file": True, "fast": True}
        ep.Experiment(
            "config.yaml", overrides=[f"hooks={hooks}"], hooks=[found], choices=choices
        ).fit()
        assert found.found == expected, hooks
    report = ep.Experiment(
        "config.yaml", overrides=["hooks=[{type: shop.wares.remember, amuont: 3}]"]
    ).check()
    assert "did you mean 'amount'?" in str(report)
