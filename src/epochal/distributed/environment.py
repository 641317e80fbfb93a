"""The rank of this process and the size of its run, from the variables that a launcher sets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping

LAUNCHED_VARIABLE = "EPOCHAL_LAUNCHED"
"""Set in processes that ``launch_ranks`` has started: it may start them again."""

_FIRST_PORT, _PORTS = 20_000, 20_000


@final
@dataclass(frozen=True, kw_only=True)
class RankEnvironment:
    """The place of a process, from the variables of torchrun, Slurm or MPI."""

    rank: int
    local_rank: int
    """Counted on this machine."""

    world_size: int
    local_world_size: int
    """How many processes of the run this machine has."""

    master_addr: str = ""
    master_port: int = 0
    """Where the processes connect; empty and 0 if the environment does not say it."""


def read_rank_environment(environ: Mapping[str, str] | None = None) -> RankEnvironment | None:
    """The place of this process; None if no launcher has started several."""
    environ = os.environ if environ is None else environ
    for names in _LAUNCHERS:
        numbers = [_read_number(environ, name) for name in names]
        rank, world_size = numbers[:2]
        if rank is None or world_size is None or not 0 <= rank < world_size:
            continue
        local_rank, local_world_size = numbers[2:]
        return RankEnvironment(
            rank=rank,
            local_rank=rank if local_rank is None else local_rank,
            world_size=world_size,
            local_world_size=world_size if local_world_size is None else local_world_size,
            master_addr=_find_address(environ),
            master_port=_find_port(environ),
        )
    return None


def is_main_process() -> bool:
    """Whether this process has rank 0, the one that writes and prints."""
    place = read_rank_environment()
    return place is None or place.rank == 0


# Rank, number of processes, and both on this machine. Not SLURM_NTASKS: a batch script has it,
# too, and is one process.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


def _read_number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "").partition("(")[0].partition(",")[0]  # Slurm writes 4(x2)
    return int(text) if text.isdecimal() else None


def _find_address(environ: Mapping[str, str]) -> str:
    names = ("MASTER_ADDR", "SLURM_LAUNCH_NODE_IPADDR")
    return next((environ[name] for name in names if environ.get(name)), "")


def _find_port(environ: Mapping[str, str]) -> int:
    port = _read_number(environ, "MASTER_PORT")
    job = _read_number(environ, "SLURM_JOB_ID")
    if port is None and job is not None:  # the same on every machine of the job
        port = _FIRST_PORT + job % _PORTS
    return port or 0
