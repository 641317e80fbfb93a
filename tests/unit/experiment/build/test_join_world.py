"""The processes of a run are joined before anything is built."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
import torch

from epochal.config import load
from epochal.distributed.rank_failure import RankLostError
from epochal.errors import Preempted
from epochal.experiment.build.join_world import joining_world
from epochal.records.layout.process import describe_process


def test_signal_after_another_process_was_killed_is_no_preemption() -> None:
    config = load({"engine": {"strategy": "ddp", "hang_after": "30min"}}).root
    child = os.fork()
    if child == 0:
        signal.pause()

    def be_preempted(*, is_killed: bool) -> None:
        with joining_world(config, {"device": "cpu"}) as world:
            joined: Any = world
            joined._store.set("process/0", json.dumps(describe_process(child)))
            if is_killed:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            raise Preempted

    with pytest.raises(Preempted):
        be_preempted(is_killed=False)
    with pytest.raises(RankLostError, match="rank 0 does not exist any more"):
        be_preempted(is_killed=True)
    assert not torch.distributed.is_initialized()  # a failed process leaves at once
