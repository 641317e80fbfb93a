"""Runs each job in an actor of a Ray cluster; only the process that launches jobs imports this."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal import durable
from epochal.errors import ConfigError, Problem
from epochal.launch.cluster.node_job import NodeJob, NodeStart, describe_node_start, plan_node_start
from epochal.launch.options import LaunchOptions
from epochal.launch.pool.executor import Executor, JobHandle, JobStart
from epochal.launch.pool.pool import CANNOT_START
from epochal.launch.restart_policy import PREEMPTED

if TYPE_CHECKING:
    from pathlib import Path

_KILLED = -9
_NODE_SECONDS = 15.0
"""How long a node may still look alive after its actor was lost."""


def connect() -> None:
    """Connect to the running cluster, that of ``RAY_ADDRESS`` or of this machine.

    Raises:
        ConfigError: There is none.
    """
    import ray

    if ray.is_initialized():
        return
    try:
        ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        what = f"no Ray cluster can be reached: {str(error).partition(chr(10))[0]}"
        hint = "start one with `ray start --head`, or set RAY_ADDRESS"
        raise ConfigError(Problem("launch.on", what, hint=hint)) from error


def count_slots() -> int:
    """How many jobs of one device the cluster can run: its GPUs, or its cores if it has none."""
    import ray

    resources = ray.cluster_resources()
    # At least one, so that a cluster that starts its nodes on demand sees a demand.
    return max(1, int(resources.get("GPU", 0) or resources.get("CPU", 0)))


@final
class RayNode:
    """The actor: starts the process of a job on its node and reports its end."""

    def __init__(self, start: NodeStart) -> None:
        self._job = NodeJob(start)

    def poll(self) -> tuple[str, int | None]:
        """The id of the node, and the exit code of the job, if it has ended."""
        import ray

        return ray.get_runtime_context().get_node_id(), self._job.poll()

    def stop(self) -> None:
        """Let the job save and end."""
        self._job.stop()

    def kill(self) -> None:
        """End the job at once."""
        self._job.kill()


@final
class RayExecutor(Executor):
    """Starts an actor for each job, with the resources that its section ``launch`` asks for."""

    def __init__(self) -> None:
        connect()

    @override
    def describe(self, start: JobStart) -> str:
        options = LaunchOptions(**start.job.launch)
        resources = _resources(options)
        words = [f"{name}={value:g}" for name, value in resources.items()]
        request = plan_node_start(start, options, int(resources["num_gpus"]))
        return f"ray {' '.join(words)}: {describe_node_start(start, request)}"

    @override
    def submit(self, start: JobStart) -> JobHandle:
        import ray

        options = LaunchOptions(**start.job.launch)
        resources = _resources(options)
        request = plan_node_start(start, options, int(resources["num_gpus"]))
        # One thread: Linux ends a child together with the thread that started it.
        actor = ray.remote(RayNode).options(max_restarts=0, max_concurrency=1, **resources)
        return _RayHandle(actor.remote(request), start.log)

    @override
    def close(self) -> None:
        pass


def _resources(options: LaunchOptions) -> dict[str, float]:
    import ray

    num_gpus = options.gpus_per_node
    if num_gpus is None:
        num_gpus = 1 if ray.cluster_resources().get("GPU", 0) >= 1 else 0
    found: dict[str, float] = {"num_gpus": num_gpus, "num_cpus": options.num_cpus}
    return found | ({"memory": options.memory_gb * 2**30} if options.memory_gb else {})


@final
class _RayHandle(JobHandle):
    def __init__(self, actor: Any, log: Path) -> None:  # noqa: ANN401 - Ray has no type for it
        self._actor = actor
        self._log = log
        self._answer = actor.poll.remote()
        self._node = ""
        self.waits_for = "waits for a node of the Ray cluster"
        self._lost_since: float | None = None
        self._code: int | None = None

    @override
    def poll(self) -> int | None:
        import ray

        if self._code is None and self._lost_since is not None:
            self._judge_loss()
        elif self._code is None and ray.wait([self._answer], timeout=0)[0]:
            self._read()
        return self._code

    def _read(self) -> None:
        import ray

        try:
            self._node, code = ray.get(self._answer)
        except ray.exceptions.RayActorError as error:
            self._lost_since = time.monotonic()
            self._note(f"lost its actor: {str(error).partition(chr(10))[0]}")
            self._judge_loss()
        except ray.exceptions.RayTaskError as error:
            self._note(f"cannot be started: {error.cause}")
            self._end(CANNOT_START)
        else:
            self.waits_for = ""
            if code is None:
                self._answer = self._actor.poll.remote()
            else:
                self._end(code)

    def _judge_loss(self) -> None:
        """A lost node is no fault of the job; a killed actor, as for too much memory, is one."""
        import ray

        is_alive = any(node["NodeID"] == self._node and node["Alive"] for node in ray.nodes())
        assert self._lost_since is not None
        if not is_alive:
            self._note("its node is gone")
            self._end(PREEMPTED)
        elif time.monotonic() - self._lost_since > _NODE_SECONDS:
            self._end(_KILLED)

    def _end(self, code: int) -> None:
        import ray

        self._code = code
        ray.kill(self._actor)  # gives back its resources

    @override
    def stop(self) -> None:
        if self._code is not None:
            return
        if self._node:
            self._actor.stop.remote()
        else:  # Ray has not placed it yet
            self._end(PREEMPTED)

    @override
    def kill(self) -> None:
        if self._code is not None:
            return
        if self._node:
            self._actor.kill.remote()
        else:
            self._end(_KILLED)

    def _note(self, text: str) -> None:
        with durable.Appender(self._log) as log:
            log.append(f"{text}\n".encode("utf-8", "replace"))
