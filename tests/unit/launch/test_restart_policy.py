"""When a run is restarted, and when it is given up."""

from __future__ import annotations

import signal

from epochal.launch.restart_policy import CRASH_LOOP, ProcessExit, RestartPolicy


def killed(step: int = 0, *, first_step: int = 0, saved_step: int = 0) -> ProcessExit:
    return ProcessExit(
        code=-signal.SIGKILL, step=step, first_step=first_step, saved_step=saved_step
    )


def test_delays_double_up_to_a_minute() -> None:
    policy = RestartPolicy(limit=9)
    delays = [policy.decide(killed(step)).delay_seconds for step in range(9)]
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert policy.decide(killed(9)).has_given_up


def test_progress_resets_the_count() -> None:
    policy = RestartPolicy(limit=1)
    for _ in range(5):
        assert policy.decide(killed()).should_restart
        assert policy.decide(killed(4, saved_step=4)).should_restart


def test_three_deaths_in_a_row_at_one_step_are_given_up_however_it_died() -> None:
    hung, failed = ProcessExit(code=69, step=7), ProcessExit(code=1, step=7)
    for ends in [(killed(7),) * 3, (hung,) * 3, (killed(7), hung, failed)]:
        policy = RestartPolicy(limit=99)
        decisions = [policy.decide(end) for end in ends]
        assert [one.should_restart for one in decisions] == [True, True, False], ends
        assert decisions[-1].has_given_up
        assert decisions[-1].why == f"it died {CRASH_LOOP} times in a row at step 7"


def test_failures_at_different_steps_are_no_crash_loop() -> None:
    policy = RestartPolicy(limit=99)
    steps = [7, 7, 8, 7, 7]
    assert all(policy.decide(ProcessExit(code=1, step=step)).should_restart for step in steps)
    assert policy.decide(ProcessExit(code=1, step=7)).why == "it died 3 times in a row at step 7"


def test_a_save_at_the_failing_step_does_not_end_a_crash_loop() -> None:
    policy = RestartPolicy(limit=99)
    ends = [ProcessExit(code=1, step=7, first_step=first, saved_step=7) for first in (4, 7, 7)]
    assert [policy.decide(end).should_restart for end in ends] == [True, True, False]


def test_exits_are_described_in_words() -> None:
    table = {
        killed(3): "was killed by SIGKILL at step 3",
        ProcessExit(code=-99, step=3): "was killed by signal 99 at step 3",
        ProcessExit(code=75, step=3): "was preempted at step 3",
        ProcessExit(code=69, step=3): "hung at step 3",
        ProcessExit(code=76, step=3): "lost the connection to another process or machine at step 3",
        ProcessExit(
            code=1, step=3, error="KeyError: 1"
        ): "ended with code 1 at step 3 (KeyError: 1)",
    }
    assert {end: str(end) for end in table} == table


def test_a_limit_of_zero_never_restarts() -> None:
    for end in (killed(7), killed(7, saved_step=4)):  # also if the process made progress
        decision = RestartPolicy(limit=0).decide(end)
        assert not decision.should_restart
        assert decision.has_given_up
        assert decision.why == "restarts are turned off"
