"""Tests of which attributes the code of a class uses."""

from __future__ import annotations

from typing import Any

from epochal.engine.events.listeners import find_used_attributes


class Busy:
    def work(self) -> Any:
        return self.in_a_method()

    @property
    def size(self) -> Any:
        return self.in_a_property

    @staticmethod
    def make(other: Any) -> Any:
        return [one.in_a_comprehension for one in other]

    @classmethod
    def build(cls) -> Any:
        return lambda: cls.in_a_lambda

    def never(self) -> None: ...


def around(busy: Any) -> Any:
    return busy.in_the_module


def test_what_a_class_and_its_module_read_is_used() -> None:
    expected = {
        "in_a_method",
        "in_a_property",
        "in_a_comprehension",
        "in_a_lambda",
        "in_the_module",
    }
    assert expected <= find_used_attributes(Busy)


def test_what_is_only_defined_is_not_used() -> None:
    assert not {"never", "work", "size", "build"} & find_used_attributes(Busy)


def test_a_class_without_a_module_is_looked_at_alone() -> None:
    kind = type("Made", (), {"work": lambda self: self.helper, "__module__": "nowhere"})
    assert find_used_attributes(kind) == {"helper"}


def test_a_class_that_was_made_in_a_function_is_looked_at_too() -> None:
    class Local:
        def work(self) -> Any:
            return self.in_a_local_class

    assert "in_a_local_class" in find_used_attributes(Local)
