"""FSDP: parameters in parts train as in one process, and resume on any number of processes.

Ranks run several trainings in one process group. This file is also their program.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn

import epochal as ep
from epochal.checkpoint import read_checkpoint
from epochal.checkpoint.sharded import fit_state, fit_to
from epochal.checkpoint.weights import load_weights_from
from epochal.distributed.sharded_tensor import gather_whole, get_own_part, is_sharded
from epochal.errors import CheckpointError
from epochal.hooks.safetensors_export import SafetensorsExport
from epochal.testing import TinyTask

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


class Net(nn.Module):
    """Blocks, a frozen layer, a tied layer, and sizes that no number of ranks divides."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(size, 7), nn.LayerNorm(7), nn.ReLU()) for size in (4, 7, 7)
        )
        self.up, self.down = nn.Linear(7, 10), nn.Linear(10, 7)
        self.head, self.tied, self.frozen = nn.Linear(7, 7), nn.Linear(7, 7), nn.Linear(7, 3)
        self.tied.weight = self.head.weight
        self.frozen.requires_grad_(False)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        x = self.down(torch.relu(self.up(x)))
        return self.frozen(self.tied(torch.relu(self.head(x))))


class Built(Net):
    """Draws its weights, has buffers, and notes on which device it was built.

    With ``kind`` it needs a value while it is built, or keeps a tensor of its own.
    """

    devices: ClassVar[list[str]] = []

    def __init__(self, kind: str = "plain") -> None:
        super().__init__()
        Built.devices.append(torch.empty(0).device.type)
        self.register_buffer("scale", torch.rand(3))
        self.blocks[1].register_buffer("shift", torch.rand(2), persistent=False)
        self.frozen.weight.note = "kept"
        self.rate = torch.linspace(0, 1, 3)[1].item() if kind == "item" else 0.5
        self.table = [torch.rand(2)] if kind == "stray" else []


class NoteWeights(ep.Hook):
    """Notes the bits of the whole model before the first step."""

    def run_start(self, run):
        model = run.raw_model
        named = [*model.named_parameters(), *model.named_buffers()]
        self.bits = {name: gather_whole(one).tolist() for name, one in named}
        self.bits["table"] = [one.tolist() for one in model.table]
        parts = model.tied.weight is model.head.weight, model.blocks[1].shift.device.type
        self.facts = [*parts, model.frozen.weight.requires_grad, model.rate]


def build(kind: str, engine: dict[str, Any]) -> dict[str, Any]:
    """What a process knows of a model that the config describes, before its first step."""
    note, named = NoteWeights(), importlib.import_module("test_sharded_training")
    named.Built.devices.clear()
    ep.Experiment(
        task=TinyTask(),
        model={"type": "test_sharded_training.Built", "kind": kind},
        optim={"type": "SGD", "lr": 0.1},
        engine=engine,
        hooks=[note],
        train={"for": "2st"},
        choices={"device": "cpu", "raise_errors": True, "no_file": True},
    ).fit()
    return {"bits": note.bits, "facts": note.facts, "devices": [*named.Built.devices]}


class ReadAgain(ep.Hook):
    """Compares the last checkpoint with what was saved, each process with its own parts."""

    priority = 900

    def run_end(self, run):
        run.world.barrier()  # until the main process has saved
        state, _ = read_checkpoint((run.checkpoint_dir / "last").resolve(), keeps_shards=True)
        assert run.raw_model is run.model
        for name, parameter in run.model.named_parameters():
            saved = fit_to(state["model"]["weights"][name], parameter)
            assert get_own_part(saved).equal(get_own_part(parameter)), name
            for key, own in run.optimizer.state[parameter].items():
                saved = fit_state(state["optim"]["state"][name][key], parameter)
                assert get_own_part(saved).equal(get_own_part(own)), (name, key)


class Spoiled(TinyTask):
    """The loss of the batch with one of the samples is not finite."""

    def batch_loss(self, out, batch):
        losses = super().batch_loss(out, batch)
        is_bad = (batch["x"][:, 0] == max(one["x"][0] for one in self.train_loader.dataset)).any()
        loss, count = losses["loss"]
        return {"loss": (loss * float("nan") if is_bad else loss, count)}


SHARDED = {"strategy": "fsdp", "fsdp_wrap": ["blocks.*"]}
SCENARIOS: dict[str, dict[str, Any]] = {
    "norm": {
        "optim": {"type": "AdamW", "lr": 0.01, "clip": 0.1, "accumulate": 2},
        "average": {"type": "ema", "decay": 0.8},
        "engine": {"on_nonfinite": "skip"},
        "log": {"grad_norm": True, "tensorboard": False},
    },
    "value": {
        "optim": {"type": "SGD", "lr": 0.1, "momentum": 0.9, "clip": {"value": 0.001}},
        "average": {"type": "swa", "every": "2st"},
        "engine": {"fsdp_reshard": False, "recompute": ["blocks.*"], "on_nonfinite": "stop"},
    },
    "bf16": {
        "optim": {"type": "AdamW", "lr": 0.01},
        "engine": {"precision": "bf16", "fsdp_offload": True},
    },
    "rollback": {
        "optim": {"type": "AdamW", "lr": 0.01},
        "engine": {"on_nonfinite": "rollback"},
        "checkpoint": {"every": "1st"},
    },
    "tensor": {
        "optim": {"type": "AdamW", "lr": 0.01, "clip": 0.1},
        "average": {"type": "ema", "decay": 0.8},
        "engine": {},
    },
}
"""Trainings that are compared with one process."""

DIVIDED = {"tensor_parallel": 2, "tensor_plan": {"up": "colwise", "down": "rowwise"}}
"""Options of the scenario ``tensor``, for 4 ranks."""


def train(name: str, engine: dict[str, Any]) -> None:
    """Train a scenario; the record is in the folder of its name."""
    torch.manual_seed(0)
    scenario = SCENARIOS[name]
    ep.Experiment(
        **{**scenario, "engine": {**scenario["engine"], **engine}},
        task=Spoiled() if name == "rollback" else TinyTask(),
        model=Net(),
        hooks=[ReadAgain(), PlaceAnother(), SafetensorsExport(name="{step}", keep=1)],
        train={"for": "8st", "eval_every": "3st"},
        monitor="+val/acc",
        record={"log_dir": name},
        choices={"device": "cpu", "raise_errors": True},
    ).fit()


def work(rank: int, ranks: int, folder: Path) -> None:
    """Train every scenario as one rank of some, or alone."""
    torch.set_num_threads(1)
    if ranks:
        store = dist.FileStore(str(folder / "store"), ranks)
        timeout = timedelta(seconds=300)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timeout)
        numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks}
        os.environ.update({key: str(number) for key, number in numbers.items()})
    if ranks == 1:
        Path("refused").write_text(json.dumps({name: refuse(name) for name in REFUSED}))
    for name in list_scenarios(ranks):
        alone = {"strategy": "none"}
        train(name, {**SHARDED, **(DIVIDED if name == "tensor" else {})} if ranks else alone)
    divided = {**SHARDED, **(DIVIDED if ranks == 4 else {})} if ranks else {}
    found = {kind: build(kind, divided) for kind in ("plain", "item", "stray")}
    Path(f"built.{rank}").write_text(json.dumps(found))


class Plain(ep.Experiment):
    """Forgets to divide its model."""

    def place_model(self, assembly, model):
        return model


class Odd(torch.optim.SGD):
    def state_dict(self):
        return {}


class Own(ep.Experiment):
    def build_optimizer(self, assembly, model):
        return Odd(model.parameters(), lr=0.1), None


class Mixed(ep.Experiment):
    def build_optimizer(self, assembly, model):
        return torch.optim.SGD([*model.parameters(), nn.Parameter(torch.ones(2))], lr=0.1), None


class Calling(TinyTask):
    def batch_forward(self, model, batch):
        return {"logits": model.blocks[0][0].weight @ batch["x"].T}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "several": (
        {"optim": {"a": {"type": "SGD", "match": "*", "lr": 1.0, "loss": "loss"}}},
        "there are several optimizers, each with its own loss, which fsdp does not support",
    ),
    "closure": (
        {"optim": {"type": "LBFGS"}},
        "LBFGS evaluates the loss several times per step, which fsdp does not support",
    ),
    "early": (
        {"optim": lambda model: torch.optim.SGD(model.parameters(), lr=0.1)},
        "SGD was built before fsdp divided the parameters",
    ),
    "mixed": (
        {"class": Mixed},
        "a group has parameters of the model, which fsdp divides, and others",
    ),
    "own": (
        {"class": Own},
        "Odd has its own state_dict, which fsdp does not support",
    ),
    "whole": (
        {"class": Plain, "optim": {"type": "SGD", "lr": 0.1}},
        "fsdp needs a model whose parameters are divided, and this one is whole",
    ),
    "lazy": (
        {"model": nn.LazyLinear(3), "optim": {"type": "SGD", "lr": 0.1}},
        "fsdp cannot divide parameters that have no size yet",
    ),
    "wrap": (
        {"engine": {"fsdp_wrap": ["layers.*"]}, "optim": {"type": "SGD", "lr": 0.1}},
        "engine.fsdp_wrap: no module is named 'layers.*'",
    ),
    "plan": (
        {
            "engine": {"tensor_parallel": 2, "tensor_plan": {"up": "colwise"}},
            "optim": {"type": "SGD", "lr": 0.1},
        },
        "1 processes cannot be divided into groups of 2",
    ),
    "called": (
        {"task": Calling(), "optim": {"type": "SGD", "lr": 0.1}},
        "call model(...) in the task, and modules of fsdp_wrap as modules",
    ),
}
"""What cannot be trained with fsdp, and what is said about it."""


class PlaceAnother(ep.Hook):
    """Shares a second model in the same way."""

    def setup(self, run):
        self.model = run.place(nn.Linear(4, 3))
        assert self.model(torch.ones(2, 4)).shape == (2, 3)
        is_divided = run.options.engine.strategy == "fsdp"
        assert is_sharded(self.model.weight) is is_divided


def refuse(name: str) -> str:
    """The error of a training that cannot be."""
    chosen = {"model": Net(), "task": TinyTask(), **REFUSED[name][0]}
    kind = chosen.pop("class", ep.Experiment)
    chosen["engine"] = {**SHARDED, **chosen.get("engine", {})}
    if name == "lazy":
        chosen["engine"] = {"strategy": "fsdp"}
    if callable(chosen.get("optim")):
        chosen["optim"] = chosen["optim"](chosen["model"])
    try:
        choices = {"device": "cpu", "no_file": True, "raise_errors": True}
        kind(**chosen, train={"for": "1st"}, choices=choices).fit()
    except Exception as error:
        return "".join(traceback.format_exception(error))
    return ""


def list_scenarios(ranks: int) -> list[str]:
    """The scenarios that some ranks train."""
    if ranks == 1:
        return ["norm"]
    return [name for name in SCENARIOS if not ranks or (name == "tensor") == (ranks == 4)]


def read(folder: Path) -> dict[str, Any]:
    """Weights, averaged weights and metrics of a run."""
    (record,) = (one.parent for one in folder.glob("*/*/*/run.json"))
    result = json.loads((record / "result.json").read_text())
    return {
        **{one.stem: load_file(one) for one in (record / "checkpoints").glob("*.safetensors")},
        **{one.stem: load_file(one) for one in (record / "safetensors").glob("*")},
        "metrics": result["metrics"],
        "record": record,
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, dict[str, Any]]]:
    """What each scenario computed, by number of ranks; 0 is one process without a group."""
    from forked import Child  # not at the top: the ranks run this file without it

    folder = tmp_path_factory.mktemp("sharded")
    found = {}
    for ranks in (0, 1, 3, 4):
        own = folder / str(ranks)
        own.mkdir()
        roots = '[tool.epochal]\nroots = ["test_sharded_training"]\n'
        (own / "pyproject.toml").write_text(roots)
        words = [str(ranks), str(own)]
        children = [Child(__file__, str(rank), *words, cwd=own) for rank in range(ranks or 1)]
        for child in children:
            done = child.end()
            assert done.returncode == 0, done.stdout + done.stderr
        if ranks == 1:
            found["refused"] = json.loads((own / "refused").read_text())
        built = [json.loads((own / f"built.{rank}").read_text()) for rank in range(ranks or 1)]
        found[f"built by {ranks}"] = built
        found[ranks] = {name: read(own / name) for name in list_scenarios(ranks)}
    return found


def test_sharded_processes_train_like_one(trained) -> None:
    for ranks, name in [(n, one) for n in (1, 3, 4) for one in trained[n]]:
        tolerance = 0.05 if name == "bf16" else 2e-6
        found, expected = trained[ranks][name], trained[0][name]
        assert found.keys() == expected.keys()
        for kind in found.keys() - {"metrics", "record"}:
            for key, tensor in expected[kind].items():
                torch.testing.assert_close(
                    found[kind][key],
                    tensor,
                    atol=tolerance,
                    rtol=tolerance,
                    msg=lambda text, case=(name, ranks, kind, key): f"{case}: {text}",
                )
        wanted = pytest.approx(expected["metrics"], rel=10 * tolerance, abs=tolerance)
        assert found["metrics"] == wanted, (name, ranks)


def test_model_has_the_same_first_bits_in_any_number_of_processes(trained) -> None:
    (alone,) = trained["built by 0"]
    for ranks in (1, 3, 4):
        for rank, found in enumerate(trained[f"built by {ranks}"]):
            for kind, one in found.items():
                case = (ranks, rank, kind)
                assert one["bits"] == alone[kind]["bits"], case
                assert one["facts"] == alone[kind]["facts"], case
                # Only the main process has all of it; others do if they cannot do without.
                first = ["cpu"] if rank == 0 else ["meta"]
                again = [] if rank == 0 or kind == "plain" else ["cpu"]
                assert one["devices"] == [*first, *again], case


def test_weights_of_parts_load_like_those_of_one_process(trained) -> None:
    record = trained[3]["norm"]["record"]
    (path,) = {one.resolve() for one in (record / "checkpoints").glob("last")}
    assert len([*path.glob("shard-*")]) == 3
    for is_averaged, name in ((False, "final"), (True, "final-ema")):
        weights, _ = load_weights_from(path, try_ema=is_averaged)
        for key, tensor in trained[3]["norm"][name].items():
            assert weights[key].equal(tensor), (name, key)
        assert weights["tied.weight"] is weights["head.weight"]


def test_what_cannot_be_divided_is_refused_with_a_reason(trained) -> None:
    for name, (_, what) in REFUSED.items():
        assert what in " ".join(trained["refused"][name].split()), name


def test_lost_part_makes_a_checkpoint_damaged(trained, tmp_path: Path) -> None:
    path = (trained[3]["norm"]["record"] / "checkpoints" / "last").resolve()
    copy = shutil.copytree(path, tmp_path / "copy")
    (copy / "shard-00001.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"shard-00001\.safetensors: damaged: missing"):
        read_checkpoint(copy)


FSDP = ("engine.strategy=fsdp", "engine.fsdp_wrap=[body]", "engine.check_ranks=0")


def test_processes_killed_while_they_save_lose_nothing(tmp_path: Path) -> None:
    from ranked import Project

    project = Project(tmp_path)
    faults = {"3-1": "torn", "9-0": "torn"}
    for name, chosen in (("whole", {}), ("killed", faults)):
        done = project.train(name, 2, *FSDP, "model.dropout=0.3", faults=chosen)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("was killed by SIGKILL") == 2
    assert "model: Net, 58 parameters" in done.stdout
    assert project.results("killed") == project.results("whole")
    assert not [*project.find("killed").glob("checkpoints/.*")]


def test_error_in_one_process_ends_those_that_compute_with_it(tmp_path: Path) -> None:
    from ranked import Project

    together = (
        "engine.tensor_parallel=2",
        "engine.tensor_plan={body.0: colwise, head: rowwise}",
        "engine.fsdp_wrap=[]",
    )
    done = Project(tmp_path).train("broken", 2, *FSDP, *together, faults={"3-1": "raise"})
    assert done.returncode == 1
    assert "run failed: ValueError on rank 1" in done.stderr


def test_run_of_two_processes_resumes_with_one_and_three_and_without_fsdp(tmp_path: Path) -> None:
    from ranked import Project

    project = Project(tmp_path)
    done = project.train("parts", 2, *FSDP, faults={"6-1": "term"})
    assert done.returncode == 75, done.stdout + done.stderr
    found = []
    for number, words in enumerate(
        (("--nproc", "1"), ("--nproc", "3"), ("--nproc", "1", "engine.strategy=none"))
    ):
        shutil.copytree(tmp_path / "parts", tmp_path / str(number), symlinks=True)
        record = project.find(str(number))
        done = project.run("resume", str(record), "--trust", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        found.append(project.weights(str(number)))
    for weights in found[1:]:
        for name, tensor in found[0].items():
            torch.testing.assert_close(weights[name], tensor, atol=1e-6, rtol=1e-5)


if __name__ == "__main__":
    work(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
