from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.config.scalar import decode, escape, has_surrogates, resolve, show

WORDS = [
    ("", None), ("~", None), ("null", None), ("true", True), ("False", False), ("12", 12),
    ("-3", -3), ("+4", 4), ("010", 10), ("0o10", 8), ("0xff", 255), ("5e-4", 5e-4), ("1e6", 1e6),
    ("3.", 3.0), (".5", 0.5), ("-1.5E+3", -1500.0), (".inf", math.inf), ("-.INF", -math.inf),
]  # fmt: skip


def test_words_mean_what_yaml_1_2_says() -> None:
    for text, value in WORDS:
        result = resolve(text)
        assert result == value, text
        assert type(result) is type(value), text


def test_words_of_older_yaml_are_text() -> None:
    words = ["no", "on", "off", "yes", "y", "1_000", "12:30", "1ep", "0b1", "nan", "inf", "tRue"]
    for text in (*words, "2020-01-01"):
        assert resolve(text) == text


def test_numbers_out_of_range_are_refused() -> None:
    for number in (2**64 - 1, -(2**63)):
        assert resolve(str(number)) == number
    for text in (str(2**64), str(-(2**63) - 1), "9" * 10_000, "0x1" + "0" * 16):
        with pytest.raises(ValueError, match="does not fit in 64 bits"):
            resolve(text)
    with pytest.raises(ValueError, match="too big for a float"):
        resolve("1e999")


def test_nan_is_read() -> None:
    assert math.isnan(resolve(".NaN"))
    assert math.isnan(decode("$nan", "$nan"))


def test_dollar_words_are_read() -> None:
    for text, value in (
        ("$null", None),
        ("$inf", math.inf),
        ("-$inf", -math.inf),
        ("$$null", "$null"),
        ("$$$inf", "$$inf"),
    ):
        assert decode(text, text) == value


ESCAPED = [
    ("$null", "$$null"), ("-$inf", "-$$inf"), ("$$delete", "$$$delete"), ("${a}", "$${a}"),
    ("$${a} ${b}", "$$${a} $${b}"), ("cost: 5$", "cost: 5$"), ("$nullify", "$nullify"),
    ("a $null", "a $null"),
]  # fmt: skip


def test_text_that_looks_special_is_escaped() -> None:
    for text, escaped in ESCAPED:
        assert escape(text) == escaped


@given(st.text(alphabet="$-{}nulif", max_size=12))
def test_no_escaped_text_is_special(text) -> None:
    escaped = escape(text)
    if "${" not in escaped:
        assert decode(escaped, escaped) == text


def test_halves_of_surrogate_pairs_are_found() -> None:
    assert has_surrogates("a\ud800")
    assert not has_surrogates("aä😀")


SHOWN = [
    (None, "null"), (True, "true"), (False, "false"), ("True", "'True'"), (1, "1"),
    (1e-3, "0.001"), (math.inf, ".inf"), (-math.inf, "-.inf"), (math.nan, ".nan"),
    ([1, None, "x"], "[1, null, 'x']"),
    ({"a": {"b.c": True}, "d e": []}, "{a: {b.c: true}, 'd e': []}"),
]  # fmt: skip


def test_values_are_shown_as_a_config_writes_them() -> None:
    for value, text in SHOWN:
        assert show(value) == text
