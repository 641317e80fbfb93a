"""Runs each job in an actor of a Ray cluster; only the process that launches jobs imports this."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal import durable
from epochal.errors import CANNOT_START_EXIT_CODE, PREEMPTED_EXIT_CODE, ConfigError, Problem
from epochal.launch.cluster.node_job import NodeJob, NodeStart, describe_node_start, plan_node_start
from epochal.launch.launch_options import LaunchOptions
from epochal.launch.pool.executor import Executor, JobHandle, JobStart

if TYPE_CHECKING:
    from pathlib import Path

_KILLED_CODE = -9
_PLACEMENT = "STRICT_SPREAD"
_STOP_SECONDS = 120.0
"""How long the nodes of a run may take to save and end."""

_GROW_SECONDS = 5.0
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
        self._start = start
        self._job = NodeJob(start)

    def find_endpoint(self) -> str:
        """A free port of this node, to which the nodes of a run can connect."""
        import ray

        with socket.socket() as probe:
            probe.bind(("", 0))
            return f"{ray.util.get_node_ip_address()}:{probe.getsockname()[1]}"

    def join(self, nodes: int | str, endpoint: str) -> None:
        """Take part in a run of several nodes; call it before the first ``poll``."""
        self._job = NodeJob(self._start.with_rendezvous(nodes, endpoint))

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
        if options.node_range[1] > 1:
            words = [f"{options.nodes} nodes ({_PLACEMENT}), on each:", *words]
            request = request.with_rendezvous(options.nodes, "FIRST_NODE:PORT")
        return f"ray {' '.join(words)}: {describe_node_start(start, request)}"

    @override
    def submit(self, start: JobStart) -> JobHandle:
        options = LaunchOptions(**start.job.launch)
        resources = _resources(options)
        request = plan_node_start(start, options, int(resources["num_gpus"]))
        if options.node_range[1] > 1:
            return _RayGroup(request, options, resources)
        return _RayHandle(_start_actor(request, resources), start.log)

    @override
    def close(self) -> None:
        pass


def _start_actor(request: NodeStart, resources: dict[str, float], place: object = None) -> Any:  # noqa: ANN401 - Ray has no type for it
    import ray

    more = {} if place is None else {"scheduling_strategy": place}
    # One thread: Linux ends a child together with the thread that started it.
    actor = ray.remote(RayNode).options(max_restarts=0, max_concurrency=1, **resources, **more)
    return actor.remote(request)


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
        self.is_lost = False
        """Whether its actor is gone."""

        self._log = log
        self._answer = actor.poll.remote()
        self.node = ""
        """The id of its node, as soon as Ray has placed it."""

        self.waits_for = "waits for a node of the Ray cluster"
        self._lost_since: float | None = None
        self._code: int | None = None

    @override
    def poll(self) -> int | None:
        import ray

        if self._code is None and self._lost_since is not None:
            self._handle_lost_actor()
        elif self._code is None and ray.wait([self._answer], timeout=0)[0]:
            self._read()
        return self._code

    def _read(self) -> None:
        import ray

        try:
            self.node, code = ray.get(self._answer)
        except ray.exceptions.RayActorError as error:
            self._lost_since = time.monotonic()
            self.is_lost = True
            self._note(f"lost its actor: {str(error).partition(chr(10))[0]}")
            self._handle_lost_actor()
        except ray.exceptions.RayTaskError as error:
            self._note(f"cannot be started: {error.cause}")
            self._end(CANNOT_START_EXIT_CODE)
        else:
            self.waits_for = ""
            if code is None:
                self._answer = self._actor.poll.remote()
            else:
                self._end(code)

    def _handle_lost_actor(self) -> None:
        """End the job as preempted if its node was lost, else as killed, such as for memory."""
        import ray

        is_alive = any(node["NodeID"] == self.node and node["Alive"] for node in ray.nodes())
        assert self._lost_since is not None
        if not is_alive:
            self._note("its node is gone")
            self._end(PREEMPTED_EXIT_CODE)
        elif time.monotonic() - self._lost_since > _NODE_SECONDS:
            self._end(_KILLED_CODE)

    def _end(self, code: int) -> None:
        import ray

        self._code = code
        ray.kill(self._actor)  # gives back its resources

    @override
    def stop(self) -> None:
        if self._code is not None:
            return
        if self.node:
            self._actor.stop.remote()
        else:  # Ray has not placed it yet
            self._end(PREEMPTED_EXIT_CODE)

    @override
    def kill(self) -> None:
        if self._code is not None:
            return
        if self.node:
            self._actor.kill.remote()
        else:
            self._end(_KILLED_CODE)

    def _note(self, text: str) -> None:
        with durable.Appender(self._log) as log:
            log.append(f"{text}\n".encode("utf-8", "replace"))


@final
class _RayGroup(JobHandle):
    """The nodes of one run: an actor on each of them, which starts the processes there.

    The least number of nodes is a placement group, so that they start together or not at all. If a
    range is allowed, more nodes join as soon as the cluster has them, and others may be lost.
    """

    def __init__(
        self, request: NodeStart, options: LaunchOptions, resources: dict[str, float]
    ) -> None:
        from ray.util.placement_group import placement_group

        self._request = request
        self._nodes, self._range = options.nodes, options.node_range
        self._resources = resources
        names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
        self._needs = {names[name]: value for name, value in resources.items() if value}
        self._group = placement_group([self._needs] * self._range[0], strategy=_PLACEMENT)
        self._answer = self._group.ready()
        self._actors: list[Any] = []
        self._endpoint = ""
        self._members: list[_RayHandle] = []
        self._ends: list[int] = []
        self._asked: set[str] = set()
        self._stopped_at: float | None = None
        self._grown = 0.0
        self._code: int | None = None
        self.waits_for = f"waits for {self._range[0]} nodes of the Ray cluster"

    @override
    def poll(self) -> int | None:
        if self._code is None:
            self._advance()
        return self._code

    def _advance(self) -> None:
        import ray

        if self._members:
            self._watch()
        elif ray.wait([self._answer], timeout=0)[0] and not self._actors:
            self._start()
        elif self._actors and ray.wait([self._answer], timeout=0)[0]:
            try:
                self._endpoint = ray.get(self._answer)
            except ray.exceptions.RayActorError:
                self._end(PREEMPTED_EXIT_CODE)
                return
            self._members = [self._join(actor) for actor in self._actors]

    def _start(self) -> None:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        for index in range(self._range[0]):
            place = PlacementGroupSchedulingStrategy(
                placement_group=self._group, placement_group_bundle_index=index
            )
            self._actors.append(_start_actor(self._request, self._resources, place))
        self._answer = self._actors[0].find_endpoint.remote()

    def _join(self, actor: Any) -> _RayHandle:  # noqa: ANN401
        actor.join.remote(self._nodes, self._endpoint)
        return _RayHandle(actor, self._request.log)

    def _watch(self) -> None:
        """Check the nodes; the first one hosts the rendezvous and cannot be replaced."""
        first = self._members[0]
        for one in list(self._members):
            code = one.poll()
            self.waits_for = "" if one.node else self.waits_for
            if code is None:
                continue
            can_continue = one is not first and self._range[0] < self._range[1]
            if (one.is_lost or code < 0) and not can_continue:
                self.stop()
            if not one.is_lost or not can_continue:
                self._ends.append(code)
            self._members.remove(one)
        if not any(one.node for one in self._members):  # others only wait for a place
            is_preempted = not self._ends or PREEMPTED_EXIT_CODE in self._ends
            code = next((end for end in self._ends if end), 0)
            self._end(PREEMPTED_EXIT_CODE if is_preempted else code)
        elif self._stopped_at is not None and time.monotonic() - self._stopped_at > _STOP_SECONDS:
            self.kill()
        elif self._stopped_at is None and not self._ends:
            self._grow()

    def _grow(self) -> None:
        """Let more nodes of the cluster join, up to the largest number."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if len(self._members) >= self._range[1] or time.monotonic() - self._grown < _GROW_SECONDS:
            return
        self._grown = time.monotonic()
        used = {one.node for one in self._members} | self._asked
        for node in ray.nodes():
            has_room = all(node["Resources"].get(name, 0) >= n for name, n in self._needs.items())
            if not node["Alive"] or node["NodeID"] in used or not has_room:
                continue
            if len(self._members) < self._range[1]:
                self._asked.add(node["NodeID"])
                place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                actor = _start_actor(self._request, self._resources, place)
                self._members.append(self._join(actor))

    def _end(self, code: int) -> None:
        import ray
        from ray.util.placement_group import remove_placement_group

        self._code = code
        for one in self._members:
            one.kill()
        for actor in self._actors:
            ray.kill(actor)
        remove_placement_group(self._group)

    @override
    def stop(self) -> None:
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
            if not self._members and self._code is None:
                self._end(PREEMPTED_EXIT_CODE)
            for one in self._members:
                one.stop()

    @override
    def kill(self) -> None:
        if not self._members and self._code is None:
            self._end(_KILLED_CODE)
        for one in self._members:
            one.kill()
