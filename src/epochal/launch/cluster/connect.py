"""Connects to the cluster that ``launch.on`` names, and refuses what it cannot do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from epochal.config.node_range import parse_nodes
from epochal.errors import ConfigError, Problem
from epochal.launch.cluster.slots import ClusterSlots

if TYPE_CHECKING:
    from epochal.config.node import Node
    from epochal.launch.pool.devices import Leases
    from epochal.launch.pool.executor import Executor

ClusterName = Literal["ray", "slurm"]
CLUSTERS: tuple[ClusterName, ...] = ("ray", "slurm")


def connect_cluster(
    name: ClusterName, *, max_jobs: int | None = None, is_dry: bool = False
) -> tuple[Executor, Leases]:
    """What starts jobs on a cluster, and how many at once.

    Args:
        name: The kind of cluster.
        max_jobs: The number of jobs at once; by default as many as Ray has devices, on Slurm any.
        is_dry: Whether nothing will be started; then Slurm need not be there.

    Raises:
        ConfigError: The package is not installed, or there is no such cluster.
    """
    if max_jobs is not None and max_jobs < 1:
        raise ConfigError(Problem("--max-jobs", f"must be at least 1, got {max_jobs}"))
    try:
        if name == "ray":
            from epochal.launch.cluster.ray_executor import RayExecutor, count_slots

            count = count_slots if max_jobs is None else lambda: max_jobs
            return RayExecutor(), ClusterSlots(name, count)
        from epochal.launch.cluster.slurm_executor import SlurmExecutor, require_slurm

        require_slurm(has_commands=not is_dry)
        return SlurmExecutor(max_jobs=max_jobs), ClusterSlots(name, lambda: max_jobs)
    except ImportError as error:
        hint = f"pip install 'epochal[{name}]', on every node"
        what = f"{name!r} needs a package that is not installed: {error.name}"
        raise ConfigError(Problem("launch.on", what, hint=hint)) from error


def check_nodes(section: Node, *, is_exported: bool = False) -> None:
    """Refuse a section ``launch`` whose machines cannot be had.

    Raises:
        ConfigError: Says where it was written.
    """
    node, where = section.get("nodes"), section.get("on").value
    try:
        least, largest = parse_nodes(node.to_plain())
    except ValueError as error:
        raise ConfigError(Problem("launch.nodes", str(error), node.place)) from None
    if where == "slurm" and least < largest:
        what = f"a Slurm job has a fixed number of machines, got {node.value!r}"
        raise ConfigError(Problem("launch.nodes", what, node.place, f"write nodes: {largest}"))
    if where != "local" and not is_exported:
        return
    if largest > 1:
        system = "an exported task" if is_exported else "on: local"
        what = f"{system} trains on one machine, got {node.value}"
        hint = "write on: ray or on: slurm, or use `epochal run --nnodes`"
        raise ConfigError(Problem("launch.nodes", what, node.place, hint))
