"""Tests of updates that are held back, and of losses that are scaled for fp16."""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from engine.parts import Points, Sums, adder, fit, make_run, weights
from epochal.components.average import Ema
from epochal.engine import TorchSchedule
from epochal.engine.interfaces.schedule import OptimizerSchedules
from epochal.engine.optim.multi_optimizer import Member, Optimizers
from epochal.engine.step.nonfinite_guard import (
    BufferSnapshot,
    NonfiniteGuard,
    can_skip_on_device,
)
from epochal.engine.step.updater import Updater
from epochal.errors import ConfigError

if TYPE_CHECKING:
    from epochal.engine.run.engine_run import EngineRun

FUSED: list[tuple[Any, dict[str, Any]]] = [
    (torch.optim.AdamW, {"fused": True}),
    (torch.optim.Adam, {"fused": True, "amsgrad": True}),
    (torch.optim.SGD, {"fused": True}),
    (torch.optim.SGD, {"fused": True, "momentum": 0.9, "nesterov": True}),
    (torch.optim.Adagrad, {"fused": True}),
]
OTHERS: list[tuple[Any, dict[str, Any]]] = [
    (torch.optim.AdamW, {}),
    (torch.optim.SGD, {"momentum": 0.9}),
    (torch.optim.SGD, {"fused": True, "momentum": 0.9, "dampening": 0.1}),
    (torch.optim.RMSprop, {}),
]


class Poisoned(Sums):
    """Its loss is not finite at some steps."""

    def __init__(self, *bad: int, poison: float = float("nan"), batch_size: int = 4) -> None:
        super().__init__(20, batch_size=batch_size, shuffle=False, val=0)
        self.bad, self.poison, self.calls = bad, poison, 0

    def batch_loss(self, out: dict[str, Tensor], batch: list[Tensor]) -> dict[str, Any]:
        loss, count = super().batch_loss(out, batch)["loss"]
        self.calls += 1
        return {"loss": (loss * self.poison if self.calls in self.bad else loss, count)}


class Snapshots:
    """The weights, the state of the optimizer and the average after every step."""

    def __init__(self, run: EngineRun) -> None:
        self.taken: list[dict[str, Any]] = []
        run.on("step_end", self.take)

    def take(self, run: EngineRun) -> None:
        assert run.optimizer is not None
        state = {} if run.average is None else run.average.state_tensors()
        now = {
            "weights": weights(run.model),
            "optimizer": run.optimizer.state_dict()["state"],
            "average": state,
        }
        self.taken.append(copy.deepcopy(now))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def guarded(
    task: Sums, kind: Any, arguments: dict[str, Any], *, action: str = "skip", **options: Any
) -> EngineRun:
    model = adder()
    optimizer = kind(model.parameters(), lr=0.05, **arguments)
    parts = {"optimizer": optimizer, "average": Ema(decay=0.9)}
    engine = {"on_nonfinite": action, **options.pop("engine", {})}
    return make_run(task, model, parts=parts, engine=engine, **options)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize(("kind", "arguments"), FUSED + OTHERS)
def test_a_step_with_a_nonfinite_gradient_changes_nothing(
    kind: Any, arguments: dict[str, Any], poison: float
) -> None:
    run = guarded(Poisoned(3, poison=poison), kind, arguments, for_="5st")
    snapshots = Snapshots(run).taken
    fit(run)
    assert same(snapshots[1], snapshots[2])
    assert not same(snapshots[2], snapshots[3])


@pytest.mark.parametrize(("kind", "arguments"), FUSED + OTHERS)
def test_the_first_step_may_be_skipped(kind: Any, arguments: dict[str, Any]) -> None:
    """A fused SGD of torch leaves the first momentum unset there."""
    task = Poisoned(1)
    run = guarded(task, kind, arguments, for_="5st")
    by_hand = copy.deepcopy(run.model)
    fit_weights = weights(run.model)
    model = run.model
    fit(run)
    optimizer = kind(by_hand.parameters(), lr=0.05, **arguments)
    for batch in list(task.train_loader)[1:5]:
        optimizer.zero_grad()
        nn.functional.mse_loss(by_hand(batch[0]), batch[1]).backward()
        optimizer.step()
    assert torch.equal(weights(model), weights(by_hand))
    assert not torch.equal(weights(model), fit_weights)


@pytest.mark.parametrize(("kind", "arguments"), FUSED + OTHERS)
def test_finite_steps_equal_those_of_an_unguarded_run(kind: Any, arguments: dict[str, Any]) -> None:
    results = []
    for action in ("warn", "skip", "stop"):
        run = guarded(Poisoned(), kind, arguments, action=action, for_="2ep")
        model, average = run.model, run.average
        assert fit(run).status == "finished"
        assert average is not None
        results.append((weights(model), average.state_tensors()))
    assert same(results[0][0], results[1][0])
    assert same(results[0][0], results[2][0])
    assert same(results[0][1], results[1][1])


def test_with_clipping_the_norm_decides_whether_gradients_are_finite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clip = {"clip": 0.5}
    run = guarded(Poisoned(3), torch.optim.AdamW, {"fused": True}, for_="5st", optim=clip)
    snapshots = Snapshots(run).taken
    monkeypatch.delattr(torch, "_amp_foreach_non_finite_check_and_unscale_")
    fit(run)
    assert same(snapshots[1], snapshots[2])
    assert not same(snapshots[2], snapshots[3])


@pytest.mark.parametrize("is_logged", [True, False])
def test_finite_gradients_are_applied_even_if_their_norm_overflows(is_logged: bool) -> None:
    log = {"grad_norm": is_logged}
    run = guarded(Poisoned(3, poison=1e30), torch.optim.SGD, {"fused": True}, for_="5st", log=log)
    snapshots = Snapshots(run).taken
    fit(run)
    assert not same(snapshots[1], snapshots[2])


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_the_norm_of_a_skipped_gradient_is_not_logged(precision: str) -> None:
    points = Points()
    run = guarded(
        Poisoned(3),
        torch.optim.SGD,
        {"fused": True},
        engine={"precision": precision},
        log={"grad_norm": True},
        for_="1ep",
        setting={"writer": points},
    )
    fit(run)
    assert 0 < points.points[-1][1]["train/epoch/grad_norm"] < 100


def test_one_bad_microbatch_skips_the_whole_step() -> None:
    task = Poisoned(4, batch_size=2)
    run = guarded(task, torch.optim.SGD, {"fused": True}, for_="5st", optim={"accumulate": 2})
    snapshots = Snapshots(run).taken
    fit(run)
    assert same(snapshots[0], snapshots[1])
    assert not same(snapshots[1], snapshots[2])


def test_the_share_of_skipped_steps_is_a_metric_of_training() -> None:
    points = Points()
    run = guarded(Poisoned(3), torch.optim.SGD, {}, for_="1ep", setting={"writer": points})
    fit(run)
    assert points.points[-1][1]["train/epoch/skipped"] == pytest.approx(0.2)
    assert "train/skipped" not in fit(make_run(for_="1ep")).metrics


@pytest.mark.parametrize("options", [{}, {"optim": {"clip": 1.0}}])
@pytest.mark.parametrize(("kind", "arguments"), [FUSED[0], OTHERS[0]])
def test_stop_ends_the_run_with_the_weights_before_the_bad_step(
    kind: Any, arguments: Any, options: Any, caplog: pytest.LogCaptureFixture
) -> None:
    run = guarded(Poisoned(14), kind, arguments, action="stop", for_="100ep", **options)
    snapshots = Snapshots(run).taken
    with caplog.at_level(logging.ERROR):
        result = fit(run)
    assert (result.status, result.reason) == ("diverged", "diverged")
    assert result.steps <= 20
    assert same(snapshots[12], snapshots[-1])
    assert result.message == (
        "the gradient of step 14 is not finite; the weights before that step are kept\n"
        "  try a smaller optim.lr, or optim.clip=1.0; --debug finds its origin"
    )
    assert result.message in caplog.text
    assert caplog.text.count("is not finite") == 1


def test_divergence_in_the_last_steps_is_the_reason_of_the_run() -> None:
    run = guarded(Poisoned(4), torch.optim.SGD, {"fused": True}, action="stop", for_="4st")
    result = fit(run)
    assert (result.status, result.reason, result.steps) == ("diverged", "diverged", 4)


class HostReads(TorchDispatchMode):
    """Counts how often the value of a tensor is read."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("kind", "arguments", "reads"), [(*FUSED[0], 0), (*OTHERS[3], 2)])
def test_a_fused_optimizer_needs_no_host_read(
    kind: Any, arguments: dict[str, Any], reads: int
) -> None:
    model = adder()
    guard = NonfiniteGuard(kind(model.parameters(), **arguments), stops_on_nonfinite=True)
    average = Ema()
    average.start(model)
    model(torch.ones(2, 3)).sum().backward()
    with HostReads() as host:
        for _ in range(2):
            guard.check([parameter.grad for parameter in model.parameters()])
            guard.step()
            average.update(guard.skipped)
    assert host.count == reads
    assert guard.syncs_each_step == bool(reads)


def test_the_cost_of_a_host_read_is_logged_but_not_for_fused_optimizers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = [
        ({"on_nonfinite": "skip"}, "engine.on_nonfinite=skip"),
        ({"precision": "fp16"}, "engine.precision=fp16"),
        ({"precision": "fp16", "on_nonfinite": "stop"}, "engine.on_nonfinite=stop"),
    ]
    caplog.set_level(logging.INFO)
    for engine, text in table:
        fit(make_run(for_="1st", engine=engine))
        cost = f"{text} costs one host read per step with SGD; a fused optimizer would not"
        assert cost in caplog.text
    caplog.clear()
    fit(guarded(Poisoned(), torch.optim.SGD, {"fused": True}, for_="1st"))
    assert "host read" not in caplog.text


def test_only_fused_optimizers_skip_on_the_device() -> None:
    for kind, arguments in FUSED:
        assert can_skip_on_device(kind(adder().parameters(), **arguments)), (kind, arguments)
    for kind, arguments in OTHERS:
        assert not can_skip_on_device(kind(adder().parameters(), **arguments)), (kind, arguments)


def test_an_optimizer_with_a_closure_is_refused() -> None:
    what = "LBFGS evaluates the loss several times per step, so no update can be skipped"
    for key, value, other in (("on_nonfinite", "skip", "warn"), ("precision", "fp16", "bf16")):
        model = adder()
        parts = {"optimizer": torch.optim.LBFGS(model.parameters())}
        message = rf"engine.{key}: {what}\n  write {other}, or choose another optimizer"
        with pytest.raises(ConfigError, match=message):
            fit(make_run(model=model, parts=parts, engine={key: value}))


def test_added_parameters_may_be_skipped_in_their_first_step() -> None:
    model = adder()
    arguments = {"lr": 0.05, "momentum": 0.9, "fused": True}
    optimizer = torch.optim.SGD(model[0].parameters(), **arguments)
    run = make_run(
        Poisoned(2),
        model,
        parts={"optimizer": optimizer},
        engine={"on_nonfinite": "skip"},
        for_="4st",
    )

    def add(run: EngineRun) -> None:
        if run.step == 1:
            optimizer.add_param_group({"params": list(model[3].parameters())})

    run.on("step_end", add)
    fit(run)
    assert weights(model).isfinite().all()


def test_sparse_and_complex_gradients_are_checked() -> None:
    embedding = nn.Embedding(5, 2, sparse=True)
    factor = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    optimizer = torch.optim.SGD([*embedding.parameters(), factor], lr=1.0)
    guard = NonfiniteGuard(optimizer)
    for poison, is_skipped in ((1.0, False), (float("nan"), True)):
        optimizer.zero_grad()
        out = embedding(torch.tensor([1, 1, 2])) * poison
        (out.sum() * factor.abs().sum()).backward()
        guard.check([parameter.grad for parameter in (embedding.weight, factor)])
        assert bool(guard.skipped) == is_skipped


def test_a_torch_scheduler_does_not_warn_about_a_skipped_first_step() -> None:
    for is_multiple in (False, True):
        model = adder()
        members = [
            Member("first", torch.optim.SGD(model[0].parameters(), lr=0.1)),
            Member("second", torch.optim.SGD(model[3].parameters(), lr=0.1)),
        ]
        last = members[1].optimizer if is_multiple else torch.optim.SGD(model.parameters(), lr=0.1)
        schedule: Any = TorchSchedule(torch.optim.lr_scheduler.StepLR(last, 2))
        if is_multiple:
            schedule = OptimizerSchedules({"second": (last, schedule)})
        parts = {"optimizer": Optimizers(members) if is_multiple else last, "schedule": schedule}
        fit(make_run(Poisoned(1), model, parts=parts, engine={"on_nonfinite": "skip"}, for_="3st"))


def amp_loop(
    model: nn.Module, optimizer: Any, task: Sums, *, epochs: int, clip: float | None
) -> list[float]:
    """What people write by hand for fp16."""
    scaler, scales = torch.amp.GradScaler("cpu"), []
    for _ in range(epochs):
        for batch in task.train_loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss, _ = task.batch_loss(task.batch_forward(model, batch), batch)["loss"]
            scaler.scale(loss).backward()
            if clip is not None:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
    return scales


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (torch.optim.AdamW, {"fused": True}),
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.RMSprop, {}),
    ],
)
def test_fp16_equals_a_hand_written_loop_with_a_grad_scaler(
    kind: Any, arguments: dict[str, Any], clip: float | None
) -> None:
    # The second and the seventh loss overflow, whatever they are scaled by.
    run = guarded(
        Poisoned(2, 7, poison=float("inf")),
        kind,
        arguments,
        action="warn",
        engine={"precision": "fp16"},
        optim={"clip": clip},
        for_="3ep",
    )
    model, scales = run.model, []
    by_hand = copy.deepcopy(model)
    run.on("step_end", lambda run: scales.append(run.part(Updater).state_tensors()["scale"].item()))
    fit(run)
    optimizer = kind(by_hand.parameters(), lr=0.05, **arguments)
    task = Poisoned(2, 7, poison=float("inf"))
    assert scales == amp_loop(by_hand, optimizer, task, epochs=3, clip=clip)
    assert min(scales) < 65536
    assert torch.equal(weights(model), weights(by_hand))


def test_the_scale_grows_like_that_of_a_grad_scaler() -> None:
    model, by_hand = adder(), adder()
    guard = NonfiniteGuard(torch.optim.SGD(model.parameters(), lr=0.0, fused=True), is_scaled=True)
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.0, fused=True)
    features = torch.ones(1, 3)
    for step in range(2100):
        poison = float("inf") if step == 50 else 1.0
        guard.optimizer.zero_grad()
        guard.scale(model(features).sum() * poison).backward()
        guard.unscale([parameter.grad for parameter in model.parameters()])
        guard.check([])
        guard.step()
        optimizer.zero_grad()
        scaler.scale(by_hand(features).sum() * poison).backward()
        scaler.step(optimizer)
        scaler.update()
        assert guard.state_tensors()["scale"].item() == scaler.get_scale()
    assert scaler.get_scale() == 65536  # halved once, doubled once


def test_fp16_stops_only_when_no_scale_helps() -> None:
    bad = tuple(range(3, 100))
    run = guarded(
        Poisoned(*bad, poison=float("nan")),
        torch.optim.SGD,
        {"fused": True},
        action="stop",
        engine={"precision": "fp16"},
        for_="100ep",
    )
    result = fit(run)
    assert (result.status, result.reason) == ("diverged", "diverged")
    assert 3 + 16 <= result.steps <= 3 + 16 + 10
    once = guarded(
        Poisoned(3),
        torch.optim.SGD,
        {"fused": True},
        action="stop",
        engine={"precision": "fp16"},
        for_="2ep",
    )
    assert fit(once).status == "finished"


def test_a_second_run_may_use_the_same_optimizer() -> None:
    run = guarded(Poisoned(5), torch.optim.SGD, {"fused": True}, for_="5st")
    optimizer = run.optimizer
    fit(run)
    assert not hasattr(optimizer, "found_inf")
    assert not hasattr(optimizer, "grad_scale")


@pytest.mark.parametrize("kind", [int, torch.tensor])
def test_fp16_gradients_do_not_overflow_with_many_items(kind: Any) -> None:
    """Batches of a language model have thousands of them."""

    class Tokens(Poisoned):
        def __init__(self, items: int) -> None:
            super().__init__(batch_size=2)
            self.items = items

        def batch_loss(self, out: dict[str, Tensor], batch: list[Tensor]) -> dict[str, Any]:
            loss, _ = super().batch_loss(out, batch)["loss"]
            return {"loss": (loss, kind(self.items))}

    results = []
    for items in (1, 100_000):
        run = guarded(
            Tokens(items),
            torch.optim.SGD,
            {"fused": True},
            engine={"precision": "fp16"},
            optim={"accumulate": 2},
            for_="2ep",
        )
        model, guard = run.model, run.part(Updater)
        fit(run)
        results.append((weights(model), guard.state_tensors()))
    (one, other) = results
    assert same(one[0], other[0])
    assert same(one[1], other[1])


class Spoiled(Sums):
    """Its third batch is no numbers at all."""

    def __init__(self) -> None:
        super().__init__(20, shuffle=False, val=0)
        self.calls = 0

    def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
        self.calls += 1
        features = batch[0] * float("nan") if self.calls == 3 else batch[0]
        return super().batch_forward(model, [features])


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("action", ["skip", "stop"])
@pytest.mark.parametrize("is_fused", [True, False])
def test_skipped_steps_restore_batch_norm_statistics(
    accumulate: int, action: str, is_fused: bool
) -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    parts = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.05, fused=is_fused)}
    run = make_run(
        Spoiled(),
        model,
        parts=parts,
        engine={"on_nonfinite": action},
        optim={"accumulate": accumulate},
        for_="1ep",
    )
    seen: list[dict[str, Tensor]] = []
    run.on("step_end", lambda run: seen.append(copy.deepcopy(dict(run.model.named_buffers()))))
    fit(run)
    bad = 2 // accumulate
    assert same(seen[bad], seen[bad - 1])
    assert not same(seen[0], {name: torch.zeros_like(one) for name, one in seen[0].items()})
    assert all(buffer.isfinite().all() for buffer in seen[-1].values())
    assert same(seen[-1], seen[bad]) == (action == "stop")


def test_skipped_steps_restore_buffers_of_any_dtype_layout_and_size() -> None:
    def make() -> list[Tensor]:
        image = torch.ones(1, 2, 2, 2).to(memory_format=torch.channels_last)
        return [torch.ones(2, 3), torch.tensor(5), torch.empty(0), torch.tensor([True]), image]

    def change(buffers: list[Tensor]) -> None:
        for buffer in buffers:
            buffer.copy_(buffer == 0)

    for skipped in (0.0, 1.0):
        buffers, expected = make(), make()
        elsewhere = torch.ones(2, device="meta")
        snapshot = BufferSnapshot([*buffers, elsewhere], torch.device("cpu"))
        snapshot.save()
        change(buffers)
        if not skipped:
            change(expected)
        snapshot.restore_if_skipped(torch.tensor(skipped))
        assert all(map(torch.equal, buffers, expected)), skipped
        assert [one.stride() for one in buffers] == [one.stride() for one in expected]
        change(buffers)
        now = [buffer.clone() for buffer in buffers]
        snapshot.restore_if_skipped(torch.tensor(1.0))  # nothing was saved before this step
        assert all(map(torch.equal, buffers, now))
