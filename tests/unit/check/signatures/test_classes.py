from __future__ import annotations

from epochal.check import Opaque, Signature
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


def test_a_constructor_that_other_code_may_replace_is_unknown(signature_of) -> None:
    for name in (
        "Leaf",
        "MadeLeaf",
        "Strict",
        "StrictLeaf",
        "Pair",
        "Assigned",
        "Conditional",
        "Text",
    ):
        found = signature_of(BASES, name)
        assert (found.parameters, found.open) == ((), True), name


def test_an_own_constructor_is_read_with_any_base_or_metaclass(signature_of) -> None:
    for name, parameters in (
        ("Fields", ["depth"]),
        ("Own", ["size"]),
        ("Made", ["depth"]),
        ("Concrete", ["depth"]),
    ):
        found = signature_of(BASES, name)
        assert [item.name for item in found.parameters] == parameters
        assert not found.open, name


def test_abstract_bases_without_a_constructor_take_nothing(signature_of) -> None:
    found = signature_of(BASES, "Quacks")
    assert (found.parameters, found.open) == ((), False)


def test_cooperating_bases_forward_arguments_along_the_mro(signature_of) -> None:
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


def test_keyword_arguments_with_two_uses_make_the_signature_open(signature_of) -> None:
    text = """
        class Root:
            def __init__(self, depth=1): ...
        class Leaf(Root):
            def __init__(self, **rest):
                USE
                super().__init__(**rest)
    """
    for use in ("rest.pop('x')", "print(rest)", "super().__init__(**rest)", "other(**rest)"):
        assert signature_of(text.replace("USE", use), "Leaf").open


def test_the_mro_of_a_diamond_equals_pythons(write_files) -> None:
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


def test_getattr_makes_the_methods_unknown(write_files) -> None:
    text = "class A:\n    def __getattr__(self, name): ...\nclass B(A): pass"
    finder = ModuleFinder([write_files({"m.py": text})])
    found = finder.find_definition("m.B")
    assert found is not None
    assert class_definitions(found, finder)[1] is False


def test_a_class_body_binds_its_names_and_its_last_method_counts(write_files) -> None:
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


HEAD = """
    import abc, functools, torch
    from functools import wraps
    from typing import final
    from nowhere import unknown

    def keep(fn):
        TABLE[fn.__name__] = fn
        return fn

    def keep_as(name):
        def inner(fn):
            TABLE[name] = fn
            return fn
        return inner

    def wrap(fn):
        @wraps(fn)
        def inner(*args, **kwargs): return fn(*args, **kwargs)
        return inner

    def wrap_as(**legacy):
        def outer(fn):
            def inner(*args, **kwargs): return fn(*args, **kwargs)
            return inner
        return outer

    def rebind(fn):
        fn = wrap(fn)
        return fn

    class Recorder:
        def __init__(self, fn): ...
"""


def read(signature_of, decorator: str) -> Signature:
    text = f"{HEAD}\n    {decorator}\n    def make(size: int, deep: bool = False): ...\n"
    found: Signature = signature_of(text, "make")
    return found


def test_decorators_that_return_their_argument_keep_the_signature(signature_of) -> None:
    for decorator in (
        "@keep",
        "@keep_as('x')",
        "@functools.lru_cache(maxsize=3)",
        "@torch.no_grad()",
        "@final",
    ):
        found = read(signature_of, decorator)
        assert not found.open, decorator
        assert [(item.name, item.is_required) for item in found.parameters] == [
            ("size", True),
            ("deep", False),
        ], decorator


def test_other_decorators_make_the_signature_open(signature_of) -> None:
    for decorator in (
        "@wrap",
        "@wrap_as(x=1)",
        "@rebind",
        "@Recorder",
        "@unknown",
        "@unknown.x()",
        "@keep_as",
    ):
        found = read(signature_of, decorator)
        assert found.open, decorator
        size, deep = found.parameters
        assert (size.annotation, size.default) == ("int", Opaque("...")), decorator
        assert (deep.annotation, deep.default) == ("bool", Opaque("False")), decorator


def test_a_decorated_constructor_is_open(signature_of) -> None:
    text = f"""{HEAD}
    class Net:
        @wrap
        def __init__(self, size): ...
    """
    found = signature_of(text, "Net")
    assert found.open
    assert not any(item.is_required for item in found.parameters)


def test_an_unknown_class_decorator_keeps_an_own_constructor(signature_of) -> None:
    text = f"""{HEAD}
    @unknown
    class Net:
        def __init__(self, size): ...
    """
    found = signature_of(text, "Net")
    assert (found.open, [item.name for item in found.parameters]) == (False, ["size"])
