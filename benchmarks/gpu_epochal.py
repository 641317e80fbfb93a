"""Epochal in the GPU benchmark: the whole engine, timed between its steps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import gpu_work as work

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.utils.data import DataLoader

    import epochal as ep

LONG = {"tiny": 100_000_000, "resnet18": 2_000_000, "gpt2": 500_000}
"""Steps of a run that is worth compiling: far more than ten minutes."""

PATIENCE = 60.0
"""Seconds after which a step that was not compiled is measured uncompiled."""


def epochal(
    bench: work.Bench,
    *,
    step: str,
    feed: str = "",
    channels_last: bool = False,
    **engine: work.Option,
) -> None:
    """Epochal with every feature of a run, without log and record."""
    import epochal as ep

    case, watch = bench.case, bench.watch
    is_long = step == "auto" and not bench.is_quick

    class Work(ep.Task):
        def __init__(self) -> None:
            self.train_loader = epochal_loader(bench, feed or _usual_feed(case))

        def batch_forward(self, model: nn.Module, batch: work.Batch) -> Tensor:
            return model(batch[0])

        def batch_loss(self, out: Tensor, batch: work.Batch) -> dict[str, tuple[Tensor, int]]:
            return {"loss": (work.loss_of(out, batch[1]), len(batch[0]))}

    settled = Settled(case, is_waiting=is_long)

    def measure(run: ep.Run) -> None:
        watch.mark(run.step)
        settled.look(run)
        if run.step % case.steps == 0 and settled.is_over(run):
            watch.finish(run.step)
            watch.result["choices"] = dict(run.choices)
            run.stop("measured")

    def attend(run: ep.Run) -> None:
        # Added like the engine's own actions: after a hook, the engine would check everything
        # that a graph has frozen.
        run.plan.add_once("first step", ep.Every.parse("1st"), lambda _: watch.first())
        run.plan.add_period("measure", ep.Every.parse(f"{case.block}st"), measure)

    result = ep.Experiment(
        task=Work(),
        model=bench.model,
        optim={"type": "AdamW", "lr": case.lr, "weight_decay": work.WEIGHT_DECAY},
        train={"for": f"{LONG[case.name] if is_long else case.steps}st", "eval_every": 0},
        engine={
            "step": step,
            "precision": "bf16" if case.is_bf16 else "fp32",
            "channels_last": channels_last,
            **engine,
        },
        log={"console_every": 0, "record_every": 0},
        hooks=[attend],
        choices={"device": str(bench.device), "no_file": True, "raise_errors": True},
    ).fit()
    watch.result["status"] = result.status


class Settled:
    """Knows whether all timed blocks used the final kind of step.

    Args:
        case: Has the number of steps until then.
        is_waiting: Whether the run is long enough to be compiled, which is decided late.
    """

    def __init__(self, case: work.Case, *, is_waiting: bool) -> None:
        self._needed = (work.BLOCKS + 1) * case.block if is_waiting else 0
        self._is_waiting = is_waiting
        self._begun = time.perf_counter()
        self._seen: dict[str, object] = {}
        self._since = 0

    def look(self, run: ep.Run) -> None:
        """Note the choices that are in force after this step."""
        if run.choices != self._seen:
            self._seen, self._since = dict(run.choices), run.step

    def is_over(self, run: ep.Run) -> bool:
        """Whether the choice is final and was the same for all timed blocks."""
        is_final = (
            not self._is_waiting
            or "compile_saves" in self._seen
            or self._seen.get("step") == "eager"
            or time.perf_counter() - self._begun > PATIENCE
        )
        return is_final and run.step - self._since >= self._needed


def _usual_feed(case: work.Case) -> str:
    return "tensors" if case.name == "tiny" else "batches"


def epochal_loader(bench: work.Bench, feed: str) -> DataLoader[work.Batch]:
    """Batches for Epochal: ready ones as for all others, or gathered from tensors."""
    import epochal as ep

    case = bench.case
    if feed == "batches":
        return work.make_loader(case, bench.device, LONG[case.name])
    resident = {"tensors": None, "sent": False, "resident": True}[feed]
    tensors = ep.data.Tensors(*work.make_tensors(case), resident=resident)
    return tensors.loader(batch_size=case.batch)
