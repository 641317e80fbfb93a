"""Accelerate's own loop and its test model, compared with the same training in Epochal."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader

import epochal as ep
from epochal.adapters.accelerate import AccelerateExperiment
from accelerated import Classify, OwnSteps, compare, make_model, train_here
from epochal.errors import ConfigError, TaskError
from forked import Child

pytest.importorskip("accelerate")
from accelerate import Accelerator, DataLoaderConfiguration  # noqa: E402
from accelerate.state import AcceleratorState, GradientState  # noqa: E402
from accelerate.test_utils import RegressionDataset, RegressionModel  # noqa: E402
from accelerate.utils import (  # noqa: E402
    AutocastKwargs,
    DistributedDataParallelKwargs,
    GradientAccumulationPlugin,
    GradScalerKwargs,
)


@pytest.fixture(autouse=True)
def _new_accelerators() -> Any:
    yield
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
    """Run a script in two processes that find each other."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared |= {"OMP_NUM_THREADS": "1"}
    ranks = [
        Child(str(script), env={**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank})
        for rank in ("0", "1")
    ]
    return [child.end() for child in ranks]


def refuse(make: Any, message: str, **sections: Any) -> None:
    """Expect an error before the run, with an Accelerator that ``make`` makes."""
    with pytest.raises((ConfigError, TaskError), match=message):
        accelerator = make()
        made = {k: v(accelerator) if k in ("model", "task") else v for k, v in sections.items()}
        train_here(accelerator, made.pop("model", make_model()), **made)
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def test_what_the_engine_does_otherwise_is_refused_before_the_run() -> None:
    def with_handler(handler: Any) -> Any:
        return lambda: Accelerator(cpu=True, kwargs_handlers=[handler])

    def prepared_loader(accelerator: Any) -> Classify:
        task = Classify()
        task.val_loader = accelerator.prepare(task.val_loader)
        return task

    plugin = GradientAccumulationPlugin(num_steps=2, sync_with_dataloader=False)
    dispatch = DataLoaderConfiguration(dispatch_batches=True)
    given = torch.optim.SGD(make_model().parameters(), lr=0.1)
    by_two = partial(Accelerator, cpu=True, gradient_accumulation_steps=2)
    plain = partial(Accelerator, cpu=True)
    wrong_bf16 = {"engine": {"precision": "fp16"}}
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
        (by_two, "optim: an optimizer that is given.*\n.*describe it", {"optim": given}),
        (plain, "'meta' contradicts|unknown device|is not here", {"choices": {"device": "xpu"}}),
        (
            plain,
            "model: the Accelerator has prepared it",
            {"model": lambda a: a.prepare(make_model())},
        ),
        (plain, "val_loader: the Accelerator has prepared it", {"task": prepared_loader}),
    ):
        refuse(make, message, **sections)
