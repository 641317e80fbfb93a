"""Tests of names made from templates."""

from __future__ import annotations

import sys

import pytest

from epochal.config.checkpoint_name import LONGEST, check_template, fill_template


def test_names_are_filled_from_the_values_of_a_run() -> None:
    for template, name in (
        ("{tag}-{step}", "digits-42"),
        ("{tag}-{step:06d}-{val/acc:.3f}", "digits-000042-0.938"),
        ("ep{epoch}_{samples}", "ep2_640"),
        ("{step}-{val/acc@0.5:.1f}-{test/acc}", "42-0.5-none"),
    ):
        check_template(template)
        values = {"tag": "digits", "step": 42, "epoch": 2, "samples": 640, "val/acc": 0.9376}
        assert fill_template(template, values | {"val/acc@0.5": 0.5}) == name


def test_odd_characters_become_dashes() -> None:
    for tag, name in (
        ("a b/c", "a-b-c-1"),
        ("../x", "x-1"),
        ("Übung", "Übung-1"),
        ("", "1"),
        ("\n", "1"),
    ):
        assert fill_template("{tag}-{step}", {"tag": tag, "step": 1}) == name


def test_names_are_never_empty_or_long() -> None:
    assert fill_template("{tag}", {"tag": "..."}) == "checkpoint"
    assert len(fill_template("{tag}-{step}", {"tag": "x" * 500, "step": 1})) == LONGEST


def test_wrong_templates_are_refused() -> None:
    for template, message in (
        ("{tag}", "same name\nadd {step}"),
        ("best", "same name\nadd {step}"),
        ("{stop}-{step}", "has an unknown name {stop}\nwrite one of tag, step, epoch, samples"),
        ("{step.real}", "has an unknown name {step.real}"),
        ("{step}-{}", "has an unknown name {}"),
        ("{step!r}", "{step!r}: names take no conversion"),
        ("{step:.3q}", "{step:.3q}: Unknown format code 'q'"),
        ("{tag:d}{step}", "{tag:d}: Unknown format code 'd'"),
        ("{step", "expected '}' before end of string\nwrite for example {tag}-{step}"),
        ("runs/{step}", "names a folder\nset checkpoint.dir"),
    ):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
            check_template(template)
        assert message in str(caught.value), template


def test_characters_that_cannot_be_encoded_become_dashes(monkeypatch) -> None:
    assert fill_template("{tag}-{step}", {"tag": "größe", "step": 3}) == "größe-3"
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    assert fill_template("{tag}-{step}", {"tag": "größe", "step": 3}) == "gr-e-3"


def test_names_are_no_longer_than_file_systems_allow() -> None:
    name = fill_template("{tag}", {"tag": "ö" * 200})
    assert len(name.encode()) <= LONGEST
    assert set(name) == {"ö"}
