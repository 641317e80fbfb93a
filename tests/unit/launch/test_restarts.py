"""When a run is started again, and when it is given up."""

from __future__ import annotations

import signal

import pytest

from epochal.launch.restarts import CRASH_LOOP, Ending, Restarts


def killed(step: int = 0, *, begun: int = 0, saved: int = 0) -> Ending:
    return Ending(code=-signal.SIGKILL, step=step, begun=begun, saved=saved)


def test_delays_double_up_to_a_minute() -> None:
    restarts = Restarts(limit=9)
    delays = [restarts.judge(killed()).delay_seconds for _ in range(9)]
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert restarts.judge(killed()).is_surrender


def test_progress_starts_the_count_anew() -> None:
    restarts = Restarts(limit=1)
    for _ in range(5):
        assert restarts.judge(killed()).is_again
        assert restarts.judge(killed(saved=4)).is_again


def test_kills_are_no_crash_loop_since_their_step_is_not_known() -> None:
    restarts = Restarts(limit=99)
    assert all(restarts.judge(killed(7)).is_again for _ in range(2 * CRASH_LOOP))


def test_failures_at_different_steps_are_no_crash_loop() -> None:
    restarts = Restarts(limit=99)
    steps = [7, 7, 8, 7, 7]
    assert all(restarts.judge(Ending(code=1, step=step)).is_again for step in steps)
    assert restarts.judge(Ending(code=1, step=7)).why == "it failed 3 times at step 7"


def test_a_save_at_the_failing_step_is_no_way_out_of_a_crash_loop() -> None:
    restarts = Restarts(limit=99)
    endings = [Ending(code=1, step=7, begun=begun, saved=7) for begun in (4, 7, 7)]
    assert [restarts.judge(ending).is_again for ending in endings] == [True, True, False]


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        (killed(3), "was killed by SIGKILL at step 3"),
        (Ending(code=-99, step=3), "was killed by signal 99 at step 3"),
        (Ending(code=75, step=3), "was preempted at step 3"),
        (Ending(code=1, step=3, error="KeyError: 1"), "ended with code 1 at step 3 (KeyError: 1)"),
    ],
)
def test_endings_are_said_in_words(ending: Ending, text: str) -> None:
    assert str(ending) == text
