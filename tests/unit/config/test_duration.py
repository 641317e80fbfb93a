from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.config.duration import Duration, parse_duration

DURATIONS = [
    ("10ep", 10, "ep"), ("500st", 500, "st"), ("1_000st", 1000, "st"), ("1e6sa", 1_000_000, "sa"),
    ("2.5e3sa", 2500, "sa"), (" 10 ep ", 10, "ep"), ("+3ep", 3, "ep"), ("30s", 30, "s"),
    ("1.5min", 90, "s"), ("2h", 7200, "s"), ("1d", 86_400, "s"), ("0.25s", 0.25, "s"),
]  # fmt: skip


def test_durations_are_parsed() -> None:
    for text, amount, unit in DURATIONS:
        duration = parse_duration(text)
        assert (duration.amount, duration.unit) == (amount, unit), text
        assert type(duration.amount) is type(amount), text


def test_what_is_no_duration_is_refused() -> None:
    for text, message in (
        ("0ep", "must be more than zero, got 0ep"),
        ("-3st", "must be more than zero, got -3st"),
        ("2.5st", "steps must be whole numbers, got 2.5st"),
        ("0.5ep", "epochs must be whole numbers"),
        ("0.5sa", "samples must be whole numbers"),
        ("10", "needs a unit, got '10'"),
        ("10epochs", "unknown unit 'epochs'"),
        ("10EP", "unknown unit 'EP'"),
        ("ten ep", "expected a duration, got 'ten ep'"),
        ("", "expected a duration, got ''"),
        ("1e400ep", "cannot last"),
        ("9" * 50 + "st", "expected a duration"),
        ("1" + "0" * 20 + "st", "cannot last"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            parse_duration(text)
        assert "write 10ep (epochs), 500st (steps), 1e6sa (samples), 2h (time" in str(
            caught.value
        ), text


def test_numbers_and_true_are_no_durations() -> None:
    with pytest.raises(ValueError, match="needs a unit"):
        parse_duration(10)
    with pytest.raises(ValueError, match="cannot last True"):
        Duration(True, "ep")


def test_only_times_have_seconds() -> None:
    assert Duration(2, "min") == Duration(120, "s")
    assert (Duration(2, "min").seconds, Duration(2, "min").is_time) == (120.0, True)
    assert not Duration(2, "ep").is_time
    with pytest.raises(ValueError, match="2ep is not a time"):
        _ = Duration(2, "ep").seconds


def test_times_are_shown_in_the_largest_whole_unit() -> None:
    for seconds, text in (
        (86_400, "1d"),
        (5400, "90min"),
        (61, "61s"),
        (0.5, "0.5s"),
        (7200, "2h"),
    ):
        assert str(Duration(seconds, "s")) == text


@given(
    st.builds(Duration, st.integers(1, 10**12), st.sampled_from(["ep", "st", "sa", "s", "min"]))
    | st.builds(Duration, st.floats(1e-6, 1e9), st.just("s"))
)
def test_text_of_a_duration_gives_it_back(duration) -> None:
    assert parse_duration(str(duration)) == duration
    assert parse_duration(duration) is duration
