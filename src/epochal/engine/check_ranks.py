"""Checks that all processes of a run have the same data and the same weights."""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING

import torch

from epochal.engine.feed.feed import count_batches, count_samples, named_loaders
from epochal.errors import DataError, TaskError
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import nn

    from epochal.engine.interfaces.task import Loader
    from epochal.engine.run.engine_run import EngineRun

_MAX_NAMED = 3

logger = logging.getLogger(__name__)


def check_ranks(run: EngineRun) -> None:
    """Compare a digest of every parameter.

    Raises:
        TaskError: They differ: something changes them in one process only.
    """
    found = run.world.gather(_digest_parameters(run.raw_model))
    different = [name for name in found[0] if any(one.get(name) != found[0][name] for one in found)]
    if not different and all(one.keys() == found[0].keys() for one in found):
        return
    first = different[0] if different else "the model"
    ranks = [str(rank) for rank, one in enumerate(found) if one.get(first) != found[0].get(first)]
    names = ", ".join(different[:_MAX_NAMED]) + (", ..." if len(different) > _MAX_NAMED else "")
    raise TaskError(
        f"engine.check_ranks: after step {run.step} the weights of rank {', '.join(ranks)} "
        f"differ from those of rank 0: {names or 'other parameters'}\n"
        "  a hook or the task changes them with values that only one process has; use "
        "run.world.broadcast, or call the same code in every process"
    )


def check_loaders(run: EngineRun, splits: Collection[str]) -> None:
    """Compare the lengths of loaders, since each process takes its part of the same batches.

    Raises:
        DataError: They differ: a process would wait forever for the batch of another.
    """
    if run.world.is_single:
        return
    own = {
        f"{split}_loader[{name!r}]" if name else f"{split}_loader": _describe_length(loader)
        for split in splits
        for name, loader in named_loaders(run.task, split).items()
    }
    first, *others = run.world.gather(own)
    for rank, found in enumerate(others, 1):
        for name in first | found:
            here, there = first.get(name, "no such loader"), found.get(name, "no such loader")
            if here != there:
                raise DataError(
                    f"{name}: rank 0 has {here}, and rank {rank} has {there}\n"
                    "  build the same data in every process: Epochal gives each one its part of "
                    "every batch"
                )
    if "train" in splits:
        _warn_of_small_batches(run)


def _warn_of_small_batches(run: EngineRun) -> None:
    for loader in named_loaders(run.task, "train").values():
        size = getattr(loader, "batch_size", None)
        if isinstance(size, int) and size < run.num_data_ranks:
            logger.warning(
                "train_loader: batches of %s for %d processes, so %d of them will be idle; "
                "use larger batches or fewer processes",
                format_count(size, "sample"),
                run.num_data_ranks,
                run.num_data_ranks - size,
            )


def _describe_length(loader: Loader) -> str:
    counts = ((count_samples(loader), "sample"), (count_batches(loader, None), "batch"))
    known = [format_count(count, unit) for count, unit in counts if count is not None]
    return " in ".join(known) or "data of unknown length"


@torch.no_grad()
def _digest_parameters(model: nn.Module) -> dict[str, str]:
    return {
        name: hashlib.blake2b(
            one.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(),
            digest_size=8,
        ).hexdigest()
        for name, one in model.named_parameters()
    }
