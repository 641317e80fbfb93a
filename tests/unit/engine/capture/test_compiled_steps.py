"""Tests of the compiled forward pass; the backend that only traces stands for the real one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from engine.parts import Sums, adder, fit, make_run, weights
from epochal.engine import Hook, Run
from epochal.engine.capture import compiled_steps as compiled
from epochal.engine.capture.compiled_steps import compile_forward_and_loss
from epochal.engine.loss.loss import Loss, LossTerm
from epochal.engine.step.task_calls import TaskCalls
from epochal.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch._dynamo.reset()


def test_a_compiled_pass_gives_the_losses_and_metrics_of_a_plain_one() -> None:
    run = make_run(engine={"compile_backend": "eager"})
    batch = next(iter(run.task.train_loader))
    plain = run.part(TaskCalls).compute(batch)
    found = compile_forward_and_loss(run, has_one_shape=True)(batch)
    assert torch.equal(found[3]["loss"][0], plain[3]["loss"][0])
    assert torch.equal(found[2]["mae"][0], plain[2]["mae"][0])
    assert found[3]["loss"][1] == 4


def test_the_output_is_returned_only_if_it_is_needed() -> None:
    class Looking(Sums):
        def extra_batch_metrics(self, out: Any, batch: Any) -> dict[str, Any]:
            return {"top": (out["sum"].max(), 1)}

    for task, is_seen in ((Sums(), False), (Looking(), True)):
        run = make_run(task, engine={"compile_backend": "eager"})
        batch = next(iter(run.task.train_loader))
        out = compile_forward_and_loss(run, has_one_shape=True)(batch)[1]
        assert (out is not None) == is_seen


def test_a_compiled_run_on_the_cpu_trains_the_same() -> None:
    ends = []
    for step in ("eager", "compile"):
        model = adder(dropout=0.0)
        fit(make_run(Sums(), model, for_="2ep", engine={"step": step, "compile_backend": "eager"}))
        ends.append(weights(model))
    assert torch.equal(*ends)


class Watching(Hook):
    """Looks at outputs from the second epoch on."""

    def __init__(self) -> None:
        self.outputs: list[object] = []

    def epoch_start(self, run: Run, split: str) -> None:
        if split == "train" and run.epoch == 1:
            run.on("batch_end", self._look)

    def _look(self, split: str, out: object) -> None:
        if split == "train":
            self.outputs.append(out)


def test_listeners_to_batches_get_their_outputs() -> None:
    hook = Watching()
    engine = {"step": "compile", "compile_backend": "eager"}
    fit(make_run(Sums(), hooks=(hook,), for_="2ep", engine=engine))
    assert len(hook.outputs) == 5
    assert all(isinstance(out, dict) for out in hook.outputs)


def test_steps_stay_compiled_after_a_change_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Replacing(Hook):
        def epoch_end(self, run: Run, split: str) -> None:
            if split == "train" and run.epoch == 1:
                run.replace_task_method("post_batch_forward", lambda out, batch: out)

    made: list[object] = []

    def counted(run: Run, *, has_one_shape: bool) -> Any:
        made.append(run.part(TaskCalls))
        return compile_forward_and_loss(run, has_one_shape=has_one_shape)

    monkeypatch.setattr(compiled, "compile_forward_and_loss", counted)
    engine = {"step": "compile", "compile_backend": "eager"}
    fit(make_run(Sums(), hooks=(Replacing(),), for_="3ep", eval_every=0, engine=engine))
    assert len(made) == len({id(calls) for calls in made}) == 2


def test_dropout_of_the_default_backend_draws_as_eager_code_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Any] = []

    def compile_(function: Any, **options: Any) -> Any:
        given.append(options)
        return function

    monkeypatch.setattr(torch, "compile", compile_)
    for backend in ("inductor", "eager"):
        compile_forward_and_loss(make_run(engine={"compile_backend": backend}), has_one_shape=True)
    assert [options["options"] for options in given] == [{"fallback_random": True}, None]
    assert given[0]["dynamic"] is False


def test_a_backend_that_torch_does_not_know_is_refused_before_the_first_step() -> None:
    for name, hint in [
        ("inducktor", "did you mean 'inductor'"),
        ("nosuch", "write one of .*eager.*inductor"),
    ]:
        run = make_run(for_="1st", engine={"step": "compile", "compile_backend": name})
        message = rf"engine.compile_backend: torch has no backend '{name}'\n  {hint}"
        with pytest.raises(ConfigError, match=message):
            fit(run)
        assert run.step == 0, name


def test_a_backend_that_is_not_used_is_not_asked_for() -> None:
    fit(make_run(for_="1st", engine={"step": "eager", "compile_backend": "nosuch"}))


def options_of(monkeypatch: pytest.MonkeyPatch, *, one_shape: bool = False, **engine: Any) -> Any:
    """What torch.compile is given."""
    given: list[Any] = []

    def compile_(function: Any, **options: Any) -> Any:
        given.append(options)
        return function

    monkeypatch.setattr(torch, "compile", compile_)
    compile_forward_and_loss(make_run(engine=engine), has_one_shape=one_shape)
    return given[0]


def test_options_of_the_config_reach_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    found = options_of(
        monkeypatch,
        compile_mode="max-autotune",
        compile_dynamic=True,
        compile_fullgraph=True,
        compile_options={"epilogue_fusion": True, "fallback_random": False},
    )
    assert found["dynamic"] is True
    assert found["fullgraph"] is True
    assert found["options"] == {
        "max_autotune": True,
        "coordinate_descent_tuning": True,
        "epilogue_fusion": True,
        "fallback_random": False,
    }


def test_a_captured_step_has_one_shape_for_any_config(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert options_of(monkeypatch, one_shape=True, compile_dynamic=True)["dynamic"] is False


def test_an_option_that_the_backend_does_not_have_is_refused_before_the_first_step() -> None:
    engine = {"step": "compile", "compile_options": {"max_autotun": True}}
    message = r"has no option 'max_autotun'\n  did you mean 'max_autotune'"
    with pytest.raises(ConfigError, match=message):
        fit(make_run(for_="1st", engine=engine))


def test_a_loss_of_the_config_is_compiled_once_its_inputs_are_known() -> None:
    class Bare(Sums):
        batch_loss = None  # type: ignore[assignment]

    results = []
    for step in ("eager", "compile"):
        model = adder()
        engine = {"step": step, "compile_backend": "eager", "compile_fullgraph": True}
        loss = Loss(
            [LossTerm(nn.MSELoss(), name="mse"), LossTerm(nn.L1Loss(), name="l1", weight=0.5)]
        )
        fit(make_run(Bare(), model, for_="2ep", engine=engine, parts={"loss": loss}))
        results.append(weights(model))
    assert torch.equal(*results)
