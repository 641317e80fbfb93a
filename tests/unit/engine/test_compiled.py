"""Tests of the compiled forward pass; the backend that only traces stands for the real one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.parts import Sums, adder, fit, make_run, weights
from epochal.engine.compiled import compile_compute

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch._dynamo.reset()


def test_a_compiled_pass_gives_the_losses_and_metrics_of_a_plain_one() -> None:
    run = make_run(engine={"compile_backend": "eager"})
    batch = next(iter(run.task.train_loader))
    plain = run.calls.compute(batch)
    compiled = compile_compute(run, has_one_shape=True)(batch)
    assert torch.equal(compiled[3]["loss"][0], plain[3]["loss"][0])
    assert torch.equal(compiled[2]["mae"][0], plain[2]["mae"][0])
    assert compiled[3]["loss"][1] == 4


def test_the_output_stays_inside_unless_somebody_looks_at_it() -> None:
    class Looking(Sums):
        def extra_batch_metrics(self, out: Any, batch: Any) -> dict[str, Any]:
            return {"top": (out["sum"].max(), 1)}

    for task, is_seen in ((Sums(), False), (Looking(), True)):
        run = make_run(task, engine={"compile_backend": "eager"})
        batch = next(iter(run.task.train_loader))
        out = compile_compute(run, has_one_shape=True)(batch)[1]
        assert (out is not None) == is_seen


def test_a_compiled_run_on_the_cpu_trains_the_same() -> None:
    ends = []
    for step in ("eager", "compile"):
        model = adder(dropout=0.0)
        fit(make_run(Sums(), model, for_="2ep", engine={"step": step, "compile_backend": "eager"}))
        ends.append(weights(model))
    assert torch.equal(*ends)
