"""The debugger of one of several processes."""

from __future__ import annotations

import sys

import pytest

from epochal.distributed.environment import LAUNCHED_VARIABLE
from epochal.distributed.world import SingleProcess
from epochal.errors import TaskError
from epochal.experiment.record.post_mortem import prepare_rank


def test_breakpoint_of_several_processes_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def skip() -> None:
        """What a debugger of the user would do."""

    monkeypatch.setattr(sys, "breakpointhook", skip)
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    world = SingleProcess()
    for is_launched, count, chosen in ((False, 2, None), (True, 1, None), (True, 2, "0")):
        monkeypatch.delenv(LAUNCHED_VARIABLE, raising=False)
        if is_launched:
            monkeypatch.setenv(LAUNCHED_VARIABLE, "1")
        if chosen is not None:
            monkeypatch.setenv("PYTHONBREAKPOINT", chosen)
        world.world_size = count
        prepare_rank(world, None)
        assert sys.breakpointhook is skip, (is_launched, count, chosen)
    monkeypatch.delenv("PYTHONBREAKPOINT")
    prepare_rank(world, None)
    with pytest.raises(
        TaskError,
        match=r"test_post_mortem.py:\d+: breakpoint\(\): 2 processes .*\n  .*--debug-rank 0",
    ):
        breakpoint()
