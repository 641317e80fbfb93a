"""The options of the section launch: where ``epochal launch`` runs a config, and with what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, final

from epochal.config.bounds import AtLeast, guard
from epochal.config.duration import Duration, parse_duration
from epochal.config.node_range import parse_nodes

# Defaults are the text that a user would type, because this file is also parsed without
# being imported.


@final
@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """Where a run is started: the section ``launch``. It never changes what is computed."""

    on: Literal["local", "ray", "slurm"] = "local"
    """``local`` is this machine, ``ray`` a Ray cluster, ``slurm`` a Slurm cluster."""

    nodes: Annotated[int, AtLeast(1)] | str = 1
    """Machines for one run; ``1:3`` on Ray is 1 to 3, which may come and go while it runs."""

    gpus_per_node: Annotated[int, AtLeast(0)] | None = None
    """GPUs on each machine; null asks Ray for one if it has any, and Slurm for none."""

    nproc_per_node: Annotated[int, AtLeast(1)] | None = None
    """Processes on each machine, which share each batch; null is one for each GPU, else one."""

    cpus_per_node: Annotated[int, AtLeast(1)] | None = None
    """Cores on each machine; its processes share them (``OMP_NUM_THREADS``). null is one core for
    each process."""

    memory_gb: Annotated[int, AtLeast(1)] | None = None
    """Main memory on each machine; null leaves it to the cluster."""

    time: Duration = "24h"  # type: ignore[assignment]  # the schema shows what users type
    """Slurm: the longest time of one job; a run that needs more is saved, requeued and resumed."""

    partition: str | None = None
    """Slurm: the partition."""

    account: str | None = None
    """Slurm: the account that is charged."""

    slurm: dict[str, Any] = field(default_factory=dict)
    """Slurm: more options of sbatch, such as ``{qos: high, constraint: a100}``."""

    setup: list[str] = field(default_factory=list)
    """Shell commands before the run: on Slurm, and in an exported SkyPilot task."""

    image: str | None = None
    """The container image of exported tasks; Kubernetes needs one."""

    volume: str | None = None
    """Kubernetes: the persistent volume claim with the project, mounted at ``/workspace``."""

    accelerator: str | None = None
    """SkyPilot: the kind of GPU, such as ``A100``."""

    expose: list[str] = field(default_factory=list)
    """Keys that the form of the web page shows, in this order: ``optim`` is the whole component,
    ``train.*`` all keys of a section. By default model, optim, schedule, and what the file sets."""

    roots: list[str] = field(default_factory=list)
    """Folders of runs that this form offers for ``record.log_dir``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "time", parse_duration(self.time))
        guard(self, "launch")

    @property
    def num_ranks(self) -> int:
        """Processes on each machine."""
        return self.nproc_per_node or self.gpus_per_node or 1

    @property
    def num_cpus(self) -> int:
        """Cores on each machine."""
        return self.cpus_per_node or self.num_ranks

    @property
    def num_threads(self) -> int:
        """Threads of each process: its share of the cores."""
        return max(1, self.num_cpus // self.num_ranks)

    @property
    def node_range(self) -> tuple[int, int]:
        """The least and the largest number of machines."""
        return parse_nodes(self.nodes)
