"""Lets the processes of a run act on outside requests at the same step."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, final

from epochal.distributed.rank_listener import INTERRUPTED, TIME
from epochal.distributed.rank_listener import PREEMPTED as PREEMPTED_KIND
from epochal.engine.process.signals import PREEMPTED
from epochal.engine.run.plan import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.run.engine_run import EngineRun


def settle_agreement(run: EngineRun) -> None:
    """Do what all processes agreed to do after this step, if anything."""
    assert run.listener is not None
    agreed = run.listener.settle(run.step)
    if agreed is None:
        return
    run.clock.agreed_seconds = max(run.clock.agreed_seconds or 0.0, agreed.seconds)
    if agreed.kind != TIME:
        end_run(run, agreed.kind)


def end_run(run: EngineRun, kind: str) -> None:
    """Let the run save and end after this step."""
    if kind == INTERRUPTED:
        run.stop("user_interrupt", status="interrupted")
        return
    if run.stop_reason and run.stop_status != PREEMPTED:
        return
    run.stop(PREEMPTED, status=PREEMPTED)
    if run.step > run.first_step:
        run.request_save(PREEMPTED)


def request_end(run: EngineRun, status: str) -> None:
    """Let all processes save and end after the same step; safe in threads and signal handlers."""
    kind = PREEMPTED_KIND if status == PREEMPTED else INTERRUPTED
    if run.listener is None:
        end_run(run, kind)
    else:
        run.listener.request(kind)


def find_killed_rank(run: EngineRun) -> int | None:
    """The process whose death makes it impossible to save, after a request to end."""
    return None if run.listener is None else run.listener.find_killed()


def build_alarm(run: EngineRun) -> Alarm:
    """The alarm of a run's plan: the clock of the main process decides for all."""
    listener = run.listener
    if listener is None:
        return Alarm()
    return Alarm(ring=lambda: listener.request(TIME) if run.is_main else None)


@final
class ListenedPosition:
    """What the listener of a process needs to know about its run."""

    def __init__(self, run: EngineRun, write_stacks: Callable[[], object]) -> None:
        self._run = run
        self._write_stacks = write_stacks

    def wake(self) -> None:
        """Have the plan look at agreements after the current step."""
        self._run.plan.wake()

    def read_step(self) -> int:
        """Steps done."""
        return self._run.step

    def read_seconds(self) -> float:
        """Seconds since the run started."""
        return self._run.clock.seconds

    def describe(self) -> dict[str, Any]:
        """Where the run is; writes the stacks of this process."""
        self._write_stacks()
        return self.locate()

    def locate(self) -> dict[str, Any]:
        """Where the run is."""
        run = self._run
        return {
            "step": run.step,
            "split": run.split,
            "batch": run.batch_index,
            "is_waiting": _is_in_collective(),
            "stop": run.stop_reason,
        }


def _is_in_collective() -> bool:
    """Whether the main thread seems to wait for other processes."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        path, name = frame.f_code.co_filename.replace("\\", "/"), frame.f_code.co_name
        if "/torch/distributed/" in path or name in ("_engine_run_backward", "settle"):
            return True
        if "/epochal/engine/" in path:  # the agent that started the process is below
            return False
        frame = frame.f_back
    return False


def describe_waiting_ranks(run: EngineRun) -> str:
    """Which process the others wait for, after each of them has written its stacks."""
    listener, world = run.listener, run.world
    if listener is None or not world.is_main:
        return ""
    try:
        found = listener.collect_positions()
    except Exception as error:
        return f"and the other processes cannot be reached: {error}"
    silent = [rank for rank in range(world.world_size) if rank not in found]
    if silent:
        return f"{_name_ranks(silent)} did not answer"
    stopped = [rank for rank in found if found[rank]["stop"]]
    if 0 < len(stopped) < world.world_size:
        reason = found[stopped[0]]["stop"]
        return f"since run.stop({reason!r}) was only called in {_name_ranks(stopped)}"
    slowest = min((one["step"], one["batch"]) for one in found.values())
    behind = [rank for rank, one in found.items() if (one["step"], one["batch"]) == slowest]
    guilty = [rank for rank in found if not found[rank]["is_waiting"]] or behind
    if len(guilty) == world.world_size:
        return f"{_name_ranks(guilty)} busy"
    where = found[guilty[0]]
    return f"waiting for {_name_ranks(guilty)} at step {where['step']} of {where['split']}"


def _name_ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
