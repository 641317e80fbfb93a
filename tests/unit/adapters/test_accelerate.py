"""Accelerate's own loop and its test model, compared with the same training in Epochal."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader

import epochal as ep
from accelerated import Classify, OwnSteps, compare, load_points, make_model, train_here
from epochal.adapters.accelerate import AccelerateExperiment, check_place
from epochal.distributed.world import SingleProcess
from epochal.engine.run.engine_run import engine_run
from epochal.errors import ConfigError, TaskError
from epochal.records import read_run
from forked import Child
from resume import results_of

pytest.importorskip("accelerate")
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.state import AcceleratorState, GradientState
from accelerate.test_utils import RegressionDataset, RegressionModel
from accelerate.utils import (
    AutocastKwargs,
    DistributedDataParallelKwargs,
    DistributedType,
    GradientAccumulationPlugin,
    GradScalerKwargs,
)


@pytest.fixture(autouse=True)
def _new_accelerators() -> Any:
    yield
    forget_accelerators()


def forget_accelerators() -> None:
    """Let the next Accelerator have other settings."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@pytest.mark.parametrize(("accumulate", "precision"), [(1, "no"), (2, "bf16"), (3, "no")])
def test_weights_equal_those_of_accelerate(accumulate: int, precision: str) -> None:
    compare(
        Accelerator(cpu=True, gradient_accumulation_steps=accumulate, mixed_precision=precision)
    )


def test_the_regression_that_accelerate_tests_itself_with_gets_its_weights() -> None:
    def load() -> DataLoader[Any]:
        return DataLoader(RegressionDataset(length=60, seed=1), batch_size=8)

    class Regression(ep.Task):
        train_loader = load()

        def batch_forward(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
            return {"y": model(batch["x"])}

        def batch_loss(self, out: dict[str, Tensor], batch: Any) -> dict[str, Any]:
            return {"loss": (mse_loss(out["y"], batch["y"]), len(batch["y"]))}

    accelerator = Accelerator(cpu=True)
    theirs, ours = RegressionModel(), RegressionModel()
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(theirs, optimizer, load())
    for batch in [*loader, *loader]:
        loss = mse_loss(model(batch["x"]), batch["y"])
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    plain = {"task": Regression(), "optim": {"type": "SGD", "lr": 0.1}, "schedule": None}
    train_here(accelerator, ours, **plain)
    assert (theirs.a.item(), theirs.b.item()) == (ours.a.item(), ours.b.item())
    assert ours.a.item() != 0


def test_two_processes_get_the_weights_of_accelerate(tmp_path: Path) -> None:
    (tmp_path / "both.py").write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from accelerate import Accelerator, DataLoaderConfiguration\n"
        "from accelerated import check_methods, compare\n"
        "accelerator = Accelerator(\n"
        "    cpu=True, gradient_accumulation_steps=2, mixed_precision='bf16',\n"
        "    dataloader_config=DataLoaderConfiguration(split_batches=True))\n"
        "compare(accelerator)\n"
        "check_methods(accelerator)\n"
    )
    for done in run_ranks(tmp_path / "both.py"):
        assert done.returncode == 0, done.stdout + done.stderr


def run_ranks(script: Path) -> list[Any]:
    """Run a script in two processes with the variables of a launcher; the store is here."""
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    env = {**os.environ, "MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port)}
    env |= {"WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "1"}
    ranks = [
        Child(str(script), env={**env, "RANK": rank, "LOCAL_RANK": rank}) for rank in ("0", "1")
    ]
    return [child.end() for child in ranks]


class FailOnce(ep.Hook):
    """Fails after a step of its first run."""

    def __init__(self, step: int) -> None:
        self._step = step

    def step_end(self, run: ep.Run) -> None:
        if run.step == self._step and run.first_step == 0:
            raise ValueError("on purpose")


def make_scaling() -> Any:
    """An Accelerator that scales losses as it does on a GPU, with a scale that soon changes."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3, mixed_precision="fp16")
    accelerator.native_amp = True
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    return accelerator


def make_bf16() -> Any:
    return Accelerator(cpu=True, gradient_accumulation_steps=3, mixed_precision="bf16")


@pytest.mark.parametrize(
    ("make", "runner"), [(make_bf16, None), (make_bf16, OwnSteps), (make_scaling, OwnSteps)]
)
def test_a_failed_run_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, runner: Any
) -> None:
    monkeypatch.chdir(tmp_path)  # a small project, whose code is quickly copied

    def train(name: str, fail_at: int, resume: Path | None = None) -> ep.RunResult:
        forget_accelerators()
        task = Classify()
        task.train_loader = load_points(shuffle=True)
        return train_here(
            make(),
            nn.Sequential(make_model(), nn.Dropout(0.2)),
            task=task,
            hooks=[FailOnce(fail_at)],
            record={"log_dir": name},
            choices={"resume": resume, "raise_errors": False},
            log={"console_every": 0, "tensorboard": False, "system_every": 0},
            **({} if runner is None else {"runner": runner()}),
        )

    whole = train("whole", 0)
    failed = train("failed", 4)  # the first step of the second epoch
    assert failed.message == "on purpose"
    resumed = train("failed", 4, failed.dir)
    assert resumed.steps == whole.steps == 6
    results = [results_of(read_run(one.dir)) for one in (whole, resumed)]
    assert results[0] == results[1]


def make_elsewhere() -> Any:
    """An Accelerator that says it is on a GPU."""
    accelerator = Accelerator(cpu=True)
    accelerator.state._shared_state["device"] = torch.device("cuda:0")
    return accelerator


def test_a_config_builds_an_accelerator_that_agrees_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parts.py").write_text(
        "from epochal.testing import TinyModel, TinyTask\n\n\n"
        "class Task(TinyTask):\n"
        "    def setup(self, run):\n"
        "        found = self.accelerator\n"
        "        assert found.device == run.device\n"
        "        is_bf16 = found.mixed_precision == run.options.engine.precision == 'bf16'\n"
        "        assert is_bf16 or found.mixed_precision == 'no'\n"
        "        run.log({'bf16': is_bf16, 'accumulate': found.gradient_accumulation_steps})\n\n\n"
        "class Model(TinyModel):\n"
        "    pass\n"
    )
    (tmp_path / "config.yaml").write_text(
        "experiment: epochal.adapters.accelerate.AccelerateExperiment\n"
        "task: {type: parts.Task}\n"
        "model: {type: parts.Model}\n"
        "optim: SGD\n"
        "train: {for: 2st}\n"
    )
    monkeypatch.chdir(tmp_path)
    launched = {"MIXED_PRECISION": "bf16", "GRADIENT_ACCUMULATION_STEPS": "2"}
    for changes, variables, bf16, accumulate in (
        ([], {}, 0, 1),
        (["engine.precision=bf16", "optim={type: SGD, accumulate: 3}"], {}, 1, 3),
        ([], launched, 1, 2),  # as `accelerate launch --mixed_precision bf16` does
        (["engine.precision=bf16"], launched, 1, 2),
    ):
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(f"ACCELERATE_{name}", value)
            metrics = ep.run("config.yaml", overrides=changes, device="cpu", no_file=True).metrics
            assert (metrics["bf16"], metrics["accumulate"]) == (bf16, accumulate), changes

    Accelerator(cpu=True, mixed_precision="bf16")  # in code of the user
    with pytest.raises(ConfigError, match=r"already been initialized.*\n.*give your Accelerator"):
        ep.run("config.yaml", device="cpu", no_file=True)
    forget_accelerators()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "accelerate", None)
        with pytest.raises(
            ConfigError, match=r"(?s)not installed.*pip install 'epochal\[accelerate"
        ):
            ep.run("config.yaml", device="cpu", no_file=True)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    with pytest.raises(ConfigError, match="'tf32' contradicts the Accelerator, which says 'bf16'"):
        ep.run("config.yaml", overrides=["engine.precision=tf32"], device="cpu", no_file=True)


def test_an_evaluation_needs_no_optimizer() -> None:
    accelerator, task = Accelerator(cpu=True, gradient_accumulation_steps=2), Classify()
    task.test_loader = load_points()
    parts = {"task": task, "model": make_model(), "choices": {"no_file": True}}
    assert AccelerateExperiment(accelerator=accelerator, **parts).test().metrics["test/acc"] > 0
    assert accelerator.gradient_accumulation_steps == 2


def test_saving_is_left_to_the_run() -> None:
    accelerator, saved = Accelerator(cpu=True), []

    class Save(ep.Hook):
        def run_start(self, run: ep.Run) -> None:
            accelerator.save_state()
            saved.append(engine_run(run).save_reasons)
            with pytest.raises(TaskError, match=r"saves into its own folder\n.*leave out 'here'"):
                accelerator.save_state("here")
            with pytest.raises(TaskError, match=r"resumes as a whole\n.*`epochal resume`"):
                accelerator.load_state("here")

    train_here(accelerator, make_model(), hooks=[Save()], train={"for": "1st"})
    assert saved == ["accelerator.save_state"]
    assert "save_state" not in vars(accelerator)  # given back as it was


def train_with(make: Any, sections: dict[str, Any]) -> None:
    """Train with an Accelerator that ``make`` makes; functions get it."""
    accelerator = make()
    made = {name: one(accelerator) if callable(one) else one for name, one in sections.items()}
    train_here(accelerator, made.pop("model", make_model()), **made)


def test_what_the_engine_does_otherwise_is_refused_before_the_run() -> None:
    def with_handler(handler: Any) -> Any:
        return lambda: Accelerator(cpu=True, kwargs_handlers=[handler])

    def prepared_loader(accelerator: Any) -> Classify:
        task = Classify()
        task.val_loader = accelerator.prepare(task.val_loader)
        return task

    plugin = GradientAccumulationPlugin(num_steps=2, sync_with_dataloader=False)
    split, on_cpu = DataLoaderConfiguration(split_batches=True), {"choices": {"device": "cpu"}}
    dispatch = DataLoaderConfiguration(dispatch_batches=True)
    given = torch.optim.SGD(make_model().parameters(), lr=0.1)
    by_two = partial(Accelerator, cpu=True, gradient_accumulation_steps=2)
    plain = partial(Accelerator, cpu=True)
    wrong_bf16 = {"engine": {"precision": "fp16"}}

    def two(**options: Any) -> Any:
        accelerator = plain(**options)
        accelerator.state._shared_state["num_processes"] = 2
        return accelerator

    def deepspeed() -> Any:
        accelerator = plain()
        accelerator.state._shared_state["distributed_type"] = DistributedType.DEEPSPEED
        return accelerator

    for make, message, sections in (
        (partial(plain, dynamo_backend="eager"), "dynamo_backend.*\n.*engine.step: compile", {}),
        (partial(plain, dataloader_config=dispatch), "dispatch_batches.*\n.*leave it out", {}),
        (partial(plain, gradient_accumulation_plugin=plugin), "sync_with_dataloader=False", {}),
        (with_handler(DistributedDataParallelKwargs(bucket_cap_mb=5)), "bucket_cap_mb=5", {}),
        (with_handler(GradScalerKwargs(init_scale=2.0)), "init_scale=2.0 is not supported", {}),
        (with_handler(AutocastKwargs(enabled=False)), "enabled=False is not supported", {}),
        (
            partial(plain, mixed_precision="bf16"),
            "'fp16' contradicts the Accel.*'bf16'",
            wrong_bf16,
        ),
        (by_two, "accumulate: 3 contradicts", {"optim": {"type": "SGD", "accumulate": 3}}),
        (by_two, "optim: an optimizer object cannot accumulate.*\n.*describe it", {"optim": given}),
        (partial(two, dataloader_config=split), "it is process 1 of 2, and the run has 1 of 1", {}),
        (make_elsewhere, "'cpu' contradicts the Accelerator, which is on 'cuda:0'", on_cpu),
        (two, "split_batches is False.*\n.*multiply batch sizes", {}),
        (deepspeed, "DEEPSPEED is not supported.*\n.*strategy: fsdp", {}),
        (
            plain,
            "model: the Accelerator has prepared it",
            {"model": lambda a: a.prepare(make_model())},
        ),
        (plain, "val_loader: the Accelerator has prepared it", {"task": prepared_loader}),
    ):
        with pytest.raises(ConfigError, match=message):
            train_with(make, sections)
        forget_accelerators()


def test_accelerator_of_another_device_is_refused() -> None:
    accelerator = SimpleNamespace(num_processes=1, process_index=0, device=torch.device("cuda:1"))
    assembly = SimpleNamespace(world=SingleProcess(), device=torch.device("cuda:0"))
    with pytest.raises(ConfigError, match=r"on cuda:1, and the run is on cuda:0\n.*--device"):
        check_place(accelerator, assembly)
