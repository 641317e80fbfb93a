from __future__ import annotations

import pytest

from epochal.check import Opaque, Signature

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


@pytest.mark.parametrize(
    "decorator",
    ["@keep", "@keep_as('x')", "@functools.lru_cache(maxsize=3)", "@torch.no_grad()", "@final"],
)
def test_decorators_that_give_back_what_they_got_change_nothing(
    signature_of, decorator: str
) -> None:
    found = read(signature_of, decorator)
    assert not found.open
    assert [(item.name, item.is_required) for item in found.parameters] == [
        ("size", True),
        ("deep", False),
    ]


@pytest.mark.parametrize(
    "decorator",
    ["@wrap", "@wrap_as(x=1)", "@rebind", "@Recorder", "@unknown", "@unknown.x()", "@keep_as"],
)
def test_other_decorators_leave_nothing_required_and_let_more_in(
    signature_of, decorator: str
) -> None:
    found = read(signature_of, decorator)
    assert found.open
    size, deep = found.parameters
    assert (size.annotation, size.default) == ("int", Opaque("..."))
    assert (deep.annotation, deep.default) == ("bool", Opaque("False"))


def test_a_decorated_constructor_is_open_too(signature_of) -> None:
    text = f"""{HEAD}
    class Net:
        @wrap
        def __init__(self, size): ...
    """
    found = signature_of(text, "Net")
    assert found.open
    assert not any(item.is_required for item in found.parameters)


def test_an_unknown_decorator_of_a_class_with_its_own_constructor_is_trusted(signature_of) -> None:
    text = f"""{HEAD}
    @unknown
    class Net:
        def __init__(self, size): ...
    """
    found = signature_of(text, "Net")
    assert (found.open, [item.name for item in found.parameters]) == (False, ["size"])
