"""The update on a CUDA device: fused optimizers, masked steps, fp16, averaged weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import epochal as ep
from epochal.components.average import Ema
from epochal.engine.step.nonfinite_guard import NonfiniteGuard
from epochal.testing import TinyModel, TinyTask

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

FUSED: list[tuple[Any, dict[str, Any]]] = [
    (torch.optim.AdamW, {}),
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9}),
]


class Keep(ep.Hook):
    """Keeps the optimizer, the weights and the average of a run."""

    def run_start(self, run: ep.Run) -> None:
        self.optimizer: Any = run.optimizer
        self.model = run.model
        self.average = run.average


class Poisoned(TinyTask):
    """Its loss is nonfinite at one step; the host reads no value."""

    def __init__(self, bad: int) -> None:
        super().__init__()
        self.bad, self.calls = bad, 0

    def batch_loss(self, out: Any, batch: Any) -> Any:
        losses = dict(super().batch_loss(out, batch))
        self.calls += 1
        if self.calls == self.bad:
            loss, count = losses["loss"]
            losses["loss"] = (loss * float("nan"), count)
        return losses


def train(optim: Any, *, task: Any = None, **sections: Any) -> tuple[ep.RunResult, Keep]:
    keep = Keep()
    torch.manual_seed(0)
    result = ep.Experiment(
        task=TinyTask() if task is None else task,
        model=TinyModel(dropout=0.0),
        optim=optim,
        hooks=[keep],
        choices={"device": "cuda", "no_file": True},
        **{"train": {"for": "2ep"}, "engine": {"step": "eager"}, **sections},
    ).fit(raise_errors=False)
    assert result.ok or result.status == "diverged", result.traceback
    return result, keep


@pytest.mark.parametrize("kind", ["AdamW", "Adam", "SGD"])
def test_optimizers_are_fused_with_their_rate_on_the_device(kind: str) -> None:
    group = train({"type": kind, "lr": 0.01})[1].optimizer.param_groups[0]
    assert group["fused"]
    assert group.get("capturable", True)
    assert group["lr"].device.type == "cuda"
    assert group["lr"].dtype == torch.float32


@pytest.mark.parametrize("kind", ["RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta"])
def test_other_optimizers_are_capturable_with_their_rate_on_the_device(kind: str) -> None:
    group = train({"type": kind, "lr": 0.01})[1].optimizer.param_groups[0]
    assert group["capturable"]
    assert isinstance(group["lr"], Tensor)


def test_implementation_chosen_by_the_user_is_kept() -> None:
    group = train({"type": "AdamW", "foreach": True})[1].optimizer.param_groups[0]
    assert not group["fused"]
    assert not group["capturable"]
    assert isinstance(group["lr"], float)


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_schedules_move_the_rate_of_the_device(kind: str) -> None:
    schedule = {"type": "linear"}
    _, keep = train({"type": kind, "lr": 0.1}, schedule=schedule)
    assert keep.optimizer.param_groups[0]["lr"].item() < 0.05


@pytest.mark.parametrize(("kind", "arguments"), FUSED)
@pytest.mark.parametrize("clip", [None, 1.0])
def test_guarded_step_does_not_wait_for_the_device(
    kind: Any, arguments: dict[str, Any], clip: float | None
) -> None:
    model = TinyModel(dropout=0.0).cuda()
    guard = NonfiniteGuard(
        kind(model.parameters(), fused=True, **arguments), "cuda", stops_on_nonfinite=True
    )
    average = Ema()
    average.start(model)
    batch = torch.ones(4, 4, device="cuda")
    poison = torch.full((), float("nan"), device="cuda")
    one = torch.ones((), device="cuda")
    states = []
    torch.cuda.set_sync_debug_mode("error")
    try:
        for factor in (one, one, poison, one):
            model.zero_grad()
            guard.scale(model(batch).square().mean() * factor).backward()
            gradients = [parameter.grad for parameter in model.parameters()]
            norm = None if clip is None else nn.utils.clip_grad_norm_(model.parameters(), clip)
            guard.unscale(gradients)
            guard.check(gradients, norm)
            guard.step()
            average.update(guard.skipped)
            tensors = {**model.state_dict(), **average.state_tensors()}
            states.append([tensor.clone() for tensor in tensors.values()])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not all(torch.equal(a, b) for a, b in zip(states[0], states[1], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(states[1], states[2], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(states[1], states[3], strict=True))


@pytest.mark.parametrize(("kind", "arguments"), FUSED)
def test_guarded_step_can_be_captured(kind: Any, arguments: dict[str, Any]) -> None:
    model = TinyModel(dropout=0.0).cuda()
    rate = torch.tensor(0.1, device="cuda")
    extra = {"capturable": True} if kind is torch.optim.AdamW else {}
    optimizer = kind(model.parameters(), lr=rate, fused=True, **arguments, **extra)
    guard = NonfiniteGuard(optimizer, "cuda", is_scaled=True)
    average = Ema(decay=0.5)
    average.start(model)
    batch = torch.ones(4, 4, device="cuda")

    def step() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        guard.scale(model(batch).square().mean()).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        guard.unscale(gradients)
        guard.check(gradients)
        guard.step()
        average.update(guard.skipped)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    before = [parameter.clone() for parameter in model.parameters()]
    scale = guard.state_tensors()["scale"].item()
    graph.replay()
    after = [parameter.clone() for parameter in model.parameters()]
    assert not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    batch.fill_(float("nan"))
    graph.replay()
    assert guard.skipped.item() == 1
    assert guard.state_tensors()["scale"].item() == scale / 2
    assert all(torch.equal(a, b) for a, b in zip(after, model.parameters(), strict=True))


def test_fp16_equals_the_hand_written_loop_with_a_grad_scaler() -> None:
    class Ordered(TinyTask):
        def __init__(self) -> None:
            super().__init__()
            dataset = self.train_loader.dataset
            self.train_loader = torch.utils.data.DataLoader(dataset, batch_size=4)

    task = Ordered()
    engine = {"precision": "fp16", "step": "eager", "deterministic": True}
    _, keep = train({"type": "AdamW", "lr": 0.01}, task=task, engine=engine)
    torch.manual_seed(0)
    by_hand = TinyModel(dropout=0.0).cuda()
    rate = torch.tensor(0.01, device="cuda")
    options = {"lr": rate, "fused": True, "capturable": True}
    optimizer = torch.optim.AdamW(by_hand.parameters(), **options)
    optimizer._warned_capturable_if_run_uncaptured = True
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(2):
        for host in Ordered().train_loader:
            batch = {name: tensor.cuda() for name, tensor in host.items()}
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16):
                loss, _ = task.batch_loss(task.batch_forward(by_hand, batch), batch)["loss"]
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    for name, tensor in keep.model.state_dict().items():
        assert torch.equal(tensor, by_hand.state_dict()[name])


@pytest.mark.parametrize("action", ["skip", "stop"])
@pytest.mark.parametrize("kind", ["AdamW", "RMSprop"])
def test_nonfinite_gradients_are_skipped(kind: str, action: str) -> None:
    engine = {"on_nonfinite": action, "step": "eager"}
    result, keep = train(
        {"type": kind, "lr": 0.01},
        task=Poisoned(4),
        engine=engine,
        average={"type": "ema", "decay": 0.5},
        train={"for": "5ep"},
    )
    assert all(parameter.isfinite().all() for parameter in keep.model.parameters())
    assert keep.average is not None
    assert all(tensor.isfinite().all() for tensor in keep.average.state_tensors().values())
    assert result.reason == ("diverged" if action == "stop" else "max_epochs")


def test_tf32_holds_for_the_run_only() -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    seen = []

    class Look(ep.Hook):
        def run_start(self, run: ep.Run) -> None:
            seen.append(torch.backends.cuda.matmul.allow_tf32)

    ep.Experiment(
        task=TinyTask(),
        model=TinyModel(),
        optim={"type": "SGD"},
        engine={"precision": "tf32"},
        hooks=[Look()],
        choices={"device": "cuda", "no_file": True, "fast": True},
    ).fit()
    assert seen == [True]
    assert torch.backends.cuda.matmul.allow_tf32 == before
