from __future__ import annotations

import math

from tests.unit.records.index.made import origin

from epochal.records.index.run_rows import Param, params_from_values, read_params


def test_values_have_a_text_and_a_number() -> None:
    for value, text, number in [
        (0.001, "0.001", 0.001),
        (3, "3", 3.0),
        (True, "true", 1.0),
        (False, "false", 0.0),
        (None, None, None),
        ("adamw", "adamw", None),
        ([], "[]", None),
        ({}, "{}", None),
        (math.inf, "inf", math.inf),
        (math.nan, "nan", None),
        (10**400, str(10**400), None),
    ]:
        assert read_params({"a.b": origin(value)}) == [Param("a.b", text, number, False)]


def test_defaults_differ_from_values_that_were_set() -> None:
    found = read_params({"a": origin(1), "b": origin(1, "default"), "c": origin(1, "command line")})
    assert [one.is_default for one in found] == [False, True, False]


def test_a_list_has_a_row_and_its_elements_too() -> None:
    found = read_params({"betas.0": origin(0.9, "default"), "betas.1": origin(0.99, "default")})
    assert {one.key: one.text for one in found} == {
        "betas": "[0.9,0.99]",
        "betas.0": "0.9",
        "betas.1": "0.99",
    }
    assert all(one.is_default for one in found)


def test_a_list_with_one_element_that_was_set_is_no_default() -> None:
    found = read_params({"hooks.0.type": origin("A"), "hooks.0.every": origin(None, "default")})
    (whole,) = [one for one in found if one.key == "hooks"]
    assert (whole.text, whole.is_default) == ('[{"type":"A","every":null}]', False)


def test_nested_lists_are_rebuilt() -> None:
    keys = ("grid.0.0", "grid.0.1", "grid.1.0")
    texts = {one.key: one.text for one in read_params({key: origin(1) for key in keys})}
    assert texts["grid"] == "[[1,1],[1]]"
    assert texts["grid.1"] == "[1]"


def test_damaged_origins_are_left_out() -> None:
    for damaged in [
        {"a": None},
        {"a": []},
        {"a": [3]},
        {"a": "x"},
        {"a": {"value": 1}},
        {"": origin(1)},
    ]:
        assert "b" in {one.key for one in read_params({**damaged, "b": origin(1)})}


def test_a_key_below_a_leaf_does_not_crash() -> None:
    keys = ("a.0", "a.0.b", "a.0.b.c")
    assert len(read_params({key: origin(1) for key in keys})) == 4


def test_plain_values_become_rows() -> None:
    found = params_from_values({"a": {"b": 1, "c": [1, {"d": None}]}, "e": {}})
    assert {one.key: one.text for one in found} == {
        "a.b": "1",
        "a.c": '[1,{"d":null}]',
        "a.c.0": "1",
        "a.c.1.d": None,
        "e": "{}",
    }
    assert not any(one.is_default for one in found)
