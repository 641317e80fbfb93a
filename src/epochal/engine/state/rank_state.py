"""State that differs between the processes of a run: random generators, metrics of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from epochal.engine.device.move import BatchMover
from epochal.engine.device.seeding import (
    derive_seed,
    generator_states,
    restore_generators,
    seed_everything,
)
from epochal.engine.loss.metric_adapter import merge_metric
from epochal.engine.state.run_state import collect_metric, restore_metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from epochal.engine.interfaces.metric import Metric
    from epochal.engine.run.engine_run import EngineRun

    State = dict[str, Any]  # a tree of plain data and tensors

_TO_HOST = BatchMover(torch.device("cpu"), None, is_detached=True)


def collect_rank_state(run: EngineRun) -> State:
    """The state of this process that no other has."""
    random = generator_states()
    if "cuda" in random:  # those of other devices belong to other processes
        random["cuda"] = [torch.cuda.get_rng_state(run.device)]
    return {"random": random, "metrics": collect_metrics(run.train_metrics)}


def restore_rank_state(run: EngineRun, state: Mapping[str, Any]) -> None:
    """Restore it from a checkpoint, which any number of processes may have made.

    With another number of processes, the main one gets the metrics of all.
    """
    saved: Sequence[State] = state.get("ranks") or ()
    rank, metrics = run.data_rank, [one["metrics"] for one in saved]
    if len(saved) == run.num_data_ranks:
        for name, metric in run.train_metrics.items():
            restore_metric(metric, metrics[rank][name], run.device)
    elif rank > 0:
        for metric in run.train_metrics.values():
            metric.reset()
    elif saved:
        merge_metrics(run, run.train_metrics, metrics)
    if rank < len(saved):
        _restore_own_generators(saved[rank]["random"], run.device)
    elif rank == 0:
        restore_generators(state["random"])
    else:
        seed_everything(derive_seed(run.seed, "run", rank, run.step))


def collect_metrics(metrics: Mapping[str, Metric]) -> State:
    """The states of metric objects by name, on the host."""
    return {name: _TO_HOST(collect_metric(metric)) for name, metric in metrics.items()}


def merge_metrics(run: EngineRun, metrics: Mapping[str, Metric], states: Sequence[State]) -> None:
    """Give metric objects the batches of all processes, whose states are given by rank."""
    for name, metric in metrics.items():
        merge_metric(
            metric,
            [state[name] for state in states],
            lambda one, state: restore_metric(one, state, run.device),
        )


def _restore_own_generators(states: State, device: torch.device) -> None:
    own = {name: state for name, state in states.items() if name != "cuda"}
    restore_generators(own)
    if "cuda" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"][0], device)
