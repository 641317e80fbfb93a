"""Tests of steps whose batches are split so that they fit into memory."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from engine.parts import Sums, adder, fit, make_run, weights
from epochal.engine import Metric, Train
from epochal.engine.execute import execute
from epochal.engine.step.microbatch import OOM_RETRY_STEPS
from epochal.errors import ConfigError, DataError
from resume import assert_same, follow, resume

if TYPE_CHECKING:
    from epochal.engine import Run


class Limited(Sums):
    """Memory has room for ``room`` samples, from some batch on."""

    def __init__(self, count: int = 32, *, room: int = 99, batch_size: int = 16) -> None:
        super().__init__(count, batch_size=batch_size, val=0)
        self.room = room
        self.sizes: list[int] = []
        self.draws = 0

    def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
        self.draws += 1
        random.random()
        torch.rand(1)
        if len(batch[0]) > self.room:
            raise torch.OutOfMemoryError("no more room")
        type(self).seen.append(len(batch[0]))
        return super().batch_forward(model, batch)

    seen: list[int] = []  # noqa: RUF012 - kept out of the state of the task


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    Limited.seen.clear()


def trained(task: Sums, model: nn.Module | None = None, **options: Any) -> Tensor:
    model = adder() if model is None else model
    fit(make_run(task, model, **{"for_": "2ep", **options}))
    return weights(model)


def normed() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))


@pytest.mark.parametrize("most", [1, 5, 8, 16, 99])
def test_parts_give_the_gradient_of_the_whole_batch(most: int) -> None:
    whole = trained(Sums(30, batch_size=16, val=0))
    parts = trained(Sums(30, batch_size=16, val=0), engine={"microbatch": most})
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)


def test_parts_of_accumulated_batches_weigh_what_they_hold() -> None:
    whole = trained(Sums(30, batch_size=30, val=0))
    engine, optim = {"microbatch": 3}, {"accumulate": 4}
    parts = trained(Sums(30, batch_size=8, val=0), engine=engine, optim=optim)
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)


def test_batches_are_halved_until_they_fit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    run = make_run(Limited(room=5), for_="1ep", engine={"microbatch": "auto"})
    fit(run)
    assert run.choices["microbatch"] == 4
    assert Limited.seen == [4] * 8
    assert "16 samples do not fit into memory; trying 8" in caplog.text
    assert "8 samples do not fit into memory; trying 4" in caplog.text


def test_that_whole_batches_fit_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    run = make_run(Limited(), for_=f"{OOM_RETRY_STEPS}st", engine={"microbatch": "auto"})
    fit(run)
    assert "microbatch: whole batches fit into memory" in caplog.text
    assert "microbatch" not in run.choices


@pytest.mark.parametrize("make", [adder, normed])
def test_a_failed_step_is_undone(make: Any) -> None:
    found, chosen = make(), make()
    trained(Limited(room=5), found, engine={"microbatch": "auto"})
    trained(Limited(room=5), chosen, engine={"microbatch": 4})
    assert torch.equal(weights(found), weights(chosen))
    buffers = zip(found.buffers(), chosen.buffers(), strict=True)
    assert all(torch.equal(one, other) for one, other in buffers)


def test_means_metrics_and_attributes_do_not_count_the_failed_step() -> None:
    class Count(Metric):
        on = ("train",)

        def reset(self) -> None:
            self.rows = 0

        def update(self, out: Any, batch: Any) -> None:
            self.rows += len(batch[1])

        def compute(self) -> float:
            return float(self.rows)

    class Later(Limited):
        """The second half of the first batch does not fit at first."""

        def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
            if len(Limited.seen) == 1 and len(batch[0]) == 8:
                Limited.seen.append(0)
                raise torch.OutOfMemoryError("no more room")
            return super().batch_forward(model, batch)

    results, draws = [], []
    for kind, most in ((Later, "auto"), (Limited, 4)):
        Limited.seen.clear()
        task = kind(16, room=8)
        run = make_run(
            task, for_="1ep", engine={"microbatch": most}, parts={"metrics": {"rows": Count()}}
        )
        results.append(fit(run).metrics)
        draws.append(task.draws)
    assert results[0] == results[1]
    assert results[0]["train/epoch/rows"] == 16
    assert draws == [4, 4]


def test_memory_that_runs_out_later_ends_the_run_with_advice() -> None:
    task = Limited(16)
    run = make_run(task, for_="99ep", engine={"microbatch": "auto"})
    run.on("step_end", lambda run: setattr(task, "room", 1 if run.step > OOM_RETRY_STEPS else 99))
    result = execute(run, Train())
    assert (result.status, result.reason) == ("failed", "oom")
    assert "what to change" in result.traceback


def test_a_single_sample_that_does_not_fit_is_an_error() -> None:
    result = execute(make_run(Limited(room=0), engine={"microbatch": "auto"}), Train())
    assert result.reason == "oom"
    assert "not even a single sample fits" in result.traceback


def test_memory_that_runs_out_in_the_update_is_no_reason_to_split() -> None:
    model = adder()

    class Hungry(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            raise torch.OutOfMemoryError("no more room")

    parts = {"optimizer": Hungry(model.parameters(), lr=0.1)}
    result = execute(
        make_run(Limited(), model, engine={"microbatch": "auto"}, parts=parts), Train()
    )
    assert result.reason == "oom"
    assert "where smaller microbatches do not help" in result.traceback


def test_batches_that_cannot_be_split_are_refused_with_a_reason() -> None:
    def collate(samples: list[Any]) -> list[Tensor]:
        features, sums = (torch.stack(column) for column in zip(*samples, strict=True))
        return [features, sums, torch.zeros(3)]

    task = Limited(room=9)
    task.train_loader = torch.utils.data.DataLoader(
        task.train_loader.dataset, batch_size=16, collate_fn=collate
    )
    with pytest.raises(DataError, match=r"engine.microbatch: a batch cannot be split .* 3 rows"):
        fit(make_run(task, engine={"microbatch": 4}))
    result = execute(make_run(task, engine={"microbatch": "auto"}), Train())
    assert result.reason == "oom"
    assert "the batch cannot be split: batch[2] has 3 rows" in result.traceback


def test_closure_optimizers_need_a_number() -> None:
    model = adder()
    parts = {"optimizer": torch.optim.LBFGS(model.parameters(), lr=0.1)}
    with pytest.raises(ConfigError, match=r"engine\.microbatch: LBFGS evaluates(.|\n)*a number"):
        fit(make_run(Limited(), model, engine={"microbatch": "auto"}, parts=parts))
    fit(make_run(Limited(), model, for_="1st", engine={"microbatch": 4}, parts=parts))
    assert set(Limited.seen) == {4}


def test_events_name_the_batch_of_the_loader() -> None:
    indices: list[int] = []
    run = make_run(Limited(), for_="1ep", engine={"microbatch": 8})
    run.on("batch_start", lambda run, index: indices.append(index))
    fit(run)
    assert indices == [0, 0, 1, 1]


def test_batch_norm_that_sees_parts_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    trained(Limited(), normed(), engine={"microbatch": 8})
    assert caplog.text.count("BatchNorm1d computes its statistics over 8 samples") == 1
    caplog.clear()
    trained(Limited(), normed(), engine={"microbatch": 16})
    assert "statistics" not in caplog.text


def test_the_found_size_is_kept_after_a_resume() -> None:
    def build(settings: dict[str, Any]) -> Run:
        engine = {"microbatch": "auto"}
        return make_run(Limited(room=5), normed(), for_="2ep", engine=engine, setting=settings)

    whole = follow(build)
    for state in whole.states:
        assert state["choices"]["microbatch"] == 4
        Limited.seen.clear()
        assert_same(whole, resume(build, state), state)
        assert set(Limited.seen) <= {4}
