"""Tests of the tables of events."""

from __future__ import annotations

import inspect

import pytest

from epochal.engine.interfaces.hook import ALIASES, EVENTS, Hook
from epochal.engine.interfaces.splits import SPLITS


@pytest.mark.parametrize("event", EVENTS)
def test_the_interface_has_a_method_for_every_event_with_its_arguments(event: str) -> None:
    parameters = tuple(inspect.signature(getattr(Hook, event)).parameters)
    assert parameters == ("self", *EVENTS[event])
    assert getattr(Hook(), event)(*EVENTS[event]) is None


@pytest.mark.parametrize("alias", ALIASES)
def test_every_alias_leads_to_an_event_and_a_split_that_exist(alias: str) -> None:
    event, _, split = ALIASES[alias].partition(":")
    assert event in EVENTS
    assert alias not in EVENTS
    assert not split or ("split" in EVENTS[event] and split in SPLITS)


def test_every_event_method_says_when_it_comes() -> None:
    assert all(inspect.getdoc(getattr(Hook, event)) for event in EVENTS)
