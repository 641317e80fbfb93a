"""Joins the processes of a run before anything is built."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from epochal.distributed.environment import RankEnvironment, read_rank_environment
from epochal.distributed.process_group import join_process_group
from epochal.distributed.world import SingleProcess
from epochal.engine.execute import tell_ranks
from epochal.engine.interfaces.every import Every
from epochal.errors import ConfigError, Problem
from epochal.experiment.build.device import choose_device, count_ranks
from epochal.experiment.config.choices import is_debugging
from epochal.experiment.record.post_mortem import prepare_rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.config import Node
    from epochal.distributed.world import World
    from epochal.experiment.config.choices import Choices

_COLLECTIVE_SECONDS = 1800.0
_GROUP_STRATEGIES = ("ddp", "fsdp")
"""Strategies that need a process group, even for a single process."""
_DEBUGGING_SECONDS = 30 * 86400.0  # the others wait for the process in a debugger


@contextmanager
def joining_world(config: Node, choices: Choices) -> Iterator[World]:
    """The processes that share a run, as its launcher and ``engine.strategy`` say.

    An error in the block is sent to the others; the first error of any process is raised.

    Raises:
        ConfigError: The choices require processes that were not started.
    """
    count = count_ranks(choices) if read_rank_environment() is None else 1
    if count > 1:
        what = f"an Experiment in Python cannot start {count} processes"
        hint = f"torchrun --nproc-per-node {count} SCRIPT, or ep.run(CONFIG_FILE, nproc={count})"
        raise ConfigError(Problem("choices", what, hint=hint))
    strategy = config.get("engine.strategy").value
    place = None if strategy == "none" else read_rank_environment()
    if strategy not in _GROUP_STRATEGIES and (place is None or place.world_size == 1):
        yield SingleProcess()
        return
    if place is not None:
        _divide_threads(place, config)
    world = join_process_group(
        place,
        choose_device(choices),
        timeout=_DEBUGGING_SECONDS if is_debugging(choices) else _find_timeout(config),
        is_wanted=strategy in _GROUP_STRATEGIES,
    )
    prepare_rank(world, choices.get("debug_rank"))
    try:
        yield world
    except BaseException as error:
        first = tell_ranks(world, error)
        if first is error:
            raise
        raise first from error
    finally:
        world.leave()


def _find_timeout(config: Node) -> float:
    """A timeout that is longer than ``engine.hang_after``, whose report is more detailed."""
    hang_after = Every.parse(config.get("engine.hang_after").value)
    return max(_COLLECTIVE_SECONDS, 0.0 if hang_after.is_never else 2 * float(hang_after.amount))


def _divide_threads(place: RankEnvironment, config: Node) -> None:
    """Give each process of this machine its part of the cores."""
    if "OMP_NUM_THREADS" not in os.environ and config.get("engine.num_threads").value is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        torch.set_num_threads(max(1, (cores or 1) // place.local_world_size))
