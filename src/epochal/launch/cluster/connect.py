"""Connects to the cluster that ``launch.on`` names, and refuses what it cannot do yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

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


def refuse_several_devices(section: Node) -> None:
    """Refuse a section ``launch`` that asks for more than one device.

    Raises:
        ConfigError: It does; says where it was written.
    """
    for key, hint in (("nodes", "write nodes: 1"), ("gpus_per_node", "write gpus_per_node: 1")):
        node = section.get(key)
        if isinstance(node.value, int) and node.value > 1:
            what = f"one run trains on one device for now, got {node.value}"
            raise ConfigError(Problem(f"launch.{key}", what, place=node.place, hint=hint))
