"""What a hang says about the processes of a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from epochal.distributed.world import SingleProcess
from epochal.engine.run.agreement import describe_waiting_ranks


def test_hang_names_the_processes_that_hold_up_the_others() -> None:
    def place(step: int, *, is_waiting: bool = True, stop: str = "") -> dict[str, Any]:
        where = {"step": step, "split": "train", "batch": step}
        return {**where, "is_waiting": is_waiting, "stop": stop}

    world = SingleProcess()
    world.world_size = 3
    for found, expected in (
        ([place(4), place(4, is_waiting=False), place(4)], "waiting for rank 1 at step 4 of train"),
        ([place(4), place(3), place(4)], "waiting for rank 1 at step 3 of train"),
        ([place(4), place(4)], "rank 2 did not answer"),
        ([place(4)] * 3, "ranks 0, 1, 2 busy"),
        (
            [place(4), place(4, stop="enough"), place(4)],
            "since run.stop('enough') was only called in rank 1",
        ),
    ):
        positions = dict(enumerate(found))
        listener = SimpleNamespace(collect_positions=lambda positions=positions: positions)
        run: Any = SimpleNamespace(listener=listener, world=world)
        assert describe_waiting_ranks(run) == expected
