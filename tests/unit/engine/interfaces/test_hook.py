"""Tests of the tables of events."""

from __future__ import annotations

import inspect

from epochal.engine.interfaces.hook import ALIASES, EVENTS, Hook
from epochal.engine.interfaces.splits import SPLITS


def test_the_interface_has_a_method_for_every_event_with_its_arguments() -> None:
    for event, arguments in EVENTS.items():
        method = getattr(Hook, event)
        assert tuple(inspect.signature(method).parameters) == ("self", *arguments), event
        assert getattr(Hook(), event)(*arguments) is None
        assert inspect.getdoc(method), event


def test_every_alias_is_an_existing_event_and_split() -> None:
    for alias, target in ALIASES.items():
        event, _, split = target.partition(":")
        assert event in EVENTS, alias
        assert alias not in EVENTS
        assert not split or ("split" in EVENTS[event] and split in SPLITS), alias
