from __future__ import annotations

import pytest

from epochal.check.signatures.classes import (
    binds_name,
    class_definitions,
    find_method_node,
    find_mro,
)
from epochal.registry.module_finder import ModuleFinder

BASES = """
    import abc
    from dataclasses import dataclass
    from typing import Generic, NamedTuple, Protocol, TypeVar
    from collections.abc import Iterable
    from nowhere import strict, Meta
    T = TypeVar("T")

    class Fields:
        def __init_subclass__(cls, **options): ...
        def __init__(self, depth=1): ...
    class Middle(Fields):
        def __init__(self, width=1): ...
    class Leaf(Middle): size: int = 3
    class Own(Fields):
        def __init__(self, size): ...

    class Made(metaclass=Meta):
        def __init__(self, depth=1): ...
    class MadeLeaf(Made): size: int = 3

    @strict
    class Strict: size: int = 3
    class StrictLeaf(Strict): pass

    class Pair(NamedTuple): size: int
    class Assigned:
        __init__ = strict
    class Conditional:
        if strict:
            def __init__(self, size): ...
    class Text(str): pass

    class Abstract(abc.ABC, Generic[T], Iterable[T]):
        def __init__(self, depth=1): ...
    class Concrete(Abstract[int], metaclass=abc.ABCMeta): pass
    class Quacks(Protocol): pass
"""


@pytest.mark.parametrize(
    "name",
    [
        "Leaf",
        "MadeLeaf",
        "Strict",
        "StrictLeaf",
        "Pair",
        "Assigned",
        "Conditional",
        "Text",
    ],
)
def test_a_constructor_that_other_code_may_write_is_unknown(signature_of, name: str) -> None:
    found = signature_of(BASES, name)
    assert (found.parameters, found.open, found.known) == ((), True, False)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("Fields", ["depth"]), ("Own", ["size"]), ("Made", ["depth"]), ("Concrete", ["depth"])],
)
def test_an_own_constructor_counts_whatever_stands_around_it(
    signature_of, name: str, parameters: list[str]
) -> None:
    found = signature_of(BASES, name)
    assert [item.name for item in found.parameters] == parameters
    assert not found.open


def test_abstract_bases_without_a_constructor_take_nothing(signature_of) -> None:
    found = signature_of(BASES, "Quacks")
    assert (found.parameters, found.open) == ((), False)


def test_cooperating_bases_pass_arguments_along_the_order_of_look_up(signature_of) -> None:
    text = """
        class Root:
            def __init__(self, depth: int): ...
        class Mixin:
            def __init__(self, *args, rate=0.1, **rest):
                super().__init__(*args, **rest)
        class Alone(Mixin): pass
        class Both(Mixin, Root):
            def __init__(self, size, **rest):
                super().__init__(**rest)
    """
    both, alone = signature_of(text, "Both"), signature_of(text, "Alone")
    assert [item.name for item in both.parameters] == ["size", "rate", "depth"]
    assert [item.name for item in alone.parameters] == ["rate"]
    assert not both.open


@pytest.mark.parametrize(
    "use", ["rest.pop('x')", "print(rest)", "super().__init__(**rest)", "other(**rest)"]
)
def test_keyword_arguments_that_are_used_twice_let_anything_in(signature_of, use: str) -> None:
    text = f"""
        class Root:
            def __init__(self, depth=1): ...
        class Leaf(Root):
            def __init__(self, **rest):
                {use}
                super().__init__(**rest)
    """
    assert signature_of(text, "Leaf").open


def test_the_order_of_a_diamond_is_the_one_of_python(write_files) -> None:
    text = """
        class Root: pass
        class Left(Root): pass
        class Right(Root): pass
        class Leaf(Left, Right): pass
        class Loop(Loop): pass
    """
    finder = ModuleFinder([write_files({"m.py": text})])
    leaf, loop = finder.find_definition("m.Leaf"), finder.find_definition("m.Loop")
    assert leaf is not None
    assert loop is not None
    order = [item.node.name for item in find_mro(leaf, finder) if item is not None]
    assert order == ["Leaf", "Left", "Right", "Root"]
    assert len(find_mro(loop, finder)) >= 1


def test_attributes_made_on_demand_leave_the_methods_open(write_files) -> None:
    text = "class A:\n    def __getattr__(self, name): ...\nclass B(A): pass"
    finder = ModuleFinder([write_files({"m.py": text})])
    found = finder.find_definition("m.B")
    assert found is not None
    assert class_definitions(found, finder)[1] is False


def test_names_of_a_class_body_are_found_and_the_last_method_counts(write_files) -> None:
    text = """
        class A:
            x = 1
            if x:
                y: int = 2
            def f(self): inner = 3
            def f(self, last): ...
    """
    finder = ModuleFinder([write_files({"m.py": text})])
    found = finder.find_definition("m.A")
    assert found is not None
    node = found.node
    assert [name for name in ("x", "y", "f", "inner", "self") if binds_name(node, name)] == [  # type: ignore[arg-type]  # a class
        "x",
        "y",
        "f",
    ]
    last = find_method_node(node, "f")  # type: ignore[arg-type]  # a class
    assert last is not None
    assert len(last.args.args) == 2
