"""Tests of what a run is made of."""

from __future__ import annotations

import dataclasses

import pytest

from epochal.engine.parts import Environment, Options, Parts


@pytest.mark.parametrize("part", [Options(), Environment(), Parts(task=None, model=None)])
def test_what_a_run_is_made_of_does_not_change(part: object) -> None:
    name = dataclasses.fields(part)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(part, name, None)


def test_a_run_is_on_the_cpu_and_keeps_no_record_unless_told() -> None:
    setting = Environment()
    assert setting.device == "cpu"
    assert setting.dir is None
