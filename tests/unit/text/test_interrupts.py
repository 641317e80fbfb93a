"""Tests of Ctrl-C and SIGTERM while a command starts."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from epochal.errors import Preempted
from epochal.text.interrupts import (
    catching_interrupts,
    deferring_interrupts,
    leave_preemption_to_next_run,
    raising_on_preemption,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def usual_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def start(*, presses: int, imports: Callable[[], None] | None = None) -> list[str]:
    """Start up with Ctrl-C in the middle of an import; returns the points that it reached."""
    reached = []
    try:
        with catching_interrupts():
            with deferring_interrupts():
                for _ in range(presses):
                    press_ctrl_c()
                if imports is not None:
                    imports()
                reached.append("imported")
            reached.append("started")
    except KeyboardInterrupt:
        reached.append("interrupted")
    return reached


def test_ctrl_c_outside_imports_is_raised_immediately() -> None:
    with catching_interrupts(), pytest.raises(KeyboardInterrupt):
        press_ctrl_c()


def test_ctrl_c_inside_an_import_is_raised_after_it() -> None:
    assert start(presses=1) == ["imported", "interrupted"]
    assert start(presses=0) == ["imported", "started"]


def test_a_second_ctrl_c_inside_an_import_is_raised_immediately() -> None:
    assert start(presses=2) == ["interrupted"]


def test_ctrl_c_inside_a_nested_import_is_raised_after_the_outer_one() -> None:
    def imports() -> None:
        with deferring_interrupts():
            press_ctrl_c()

    assert start(presses=0, imports=imports) == ["imported", "interrupted"]


def test_an_error_of_an_import_is_raised_and_the_interrupt_is_dropped() -> None:
    def imports() -> None:
        raise ImportError("broken")

    with pytest.raises(ImportError, match="broken"):
        start(presses=1, imports=imports)
    assert start(presses=0) == ["imported", "started"]


def test_earlier_handlers_are_restored_and_ignored_signals_stay_ignored() -> None:
    with catching_interrupts():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert start(presses=2) == ["imported", "started"]


def test_without_our_handler_ctrl_c_is_not_deferred() -> None:
    with deferring_interrupts(), pytest.raises(KeyboardInterrupt):
        press_ctrl_c()


def test_a_signal_before_the_run_ends_the_command_immediately() -> None:
    for number in (signal.SIGTERM, signal.SIGUSR1):
        before = signal.getsignal(number)
        with raising_on_preemption(), pytest.raises(Preempted):
            signal.raise_signal(number)
        assert signal.getsignal(number) is before


@pytest.mark.parametrize(("times", "reached"), [(1, ["imported"]), (2, [])])
def test_a_signal_inside_an_import_is_raised_after_it_and_a_second_one_immediately(
    times: int, reached: list[str]
) -> None:
    seen = []

    def start() -> None:
        with raising_on_preemption(), deferring_interrupts():
            for _ in range(times):
                signal.raise_signal(signal.SIGTERM)
            seen.append("imported")

    with pytest.raises(Preempted):
        start()
    assert seen == reached


def test_handlers_of_other_code_are_kept() -> None:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with raising_on_preemption():
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_forked_process_ends_by_the_default_handler() -> None:
    with raising_on_preemption():
        child = os.fork()
        if child == 0:  # pytest must not continue in the child
            signal.raise_signal(signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


def test_a_signal_after_a_run_applies_to_the_next_one() -> None:
    with raising_on_preemption():
        leave_preemption_to_next_run()
        with deferring_interrupts():
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Preempted), raising_on_preemption():
            pass
        with pytest.raises(Preempted):
            signal.raise_signal(signal.SIGTERM)
    with raising_on_preemption():
        leave_preemption_to_next_run()
        signal.raise_signal(signal.SIGTERM)
    with raising_on_preemption(), deferring_interrupts():
        pass
