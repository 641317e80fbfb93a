from __future__ import annotations

import dataclasses

from epochal.check import MISSING, Opaque, read_signature
from epochal.check.signatures.signature import live_signature
from epochal.registry import Factory


class Mlp:
    """Two layers.

    Args:
        width: Units.
    """

    def __init__(self, width: int, act=object, for_: str = "1ep", **rest: int) -> None: ...


def test_a_live_class_is_read_through_python_itself() -> None:
    found = read_signature(Factory("model", "Mlp", __name__, "Mlp", object=Mlp))
    width, act, for_ = found.parameters
    assert (width.annotation, width.default, width.doc) == ("int", MISSING, "Units.")
    assert isinstance(act.default, Opaque)
    assert (for_.name, for_.argument, for_.default) == ("for", "for_", "1ep")
    assert (found.open, found.summary) == (True, "Two layers.")


def test_annotations_that_are_objects_are_written_out() -> None:
    made = dataclasses.make_dataclass("Made", [("a", int), ("b", list[int]), ("c", int | None)])
    found = live_signature(made, owner="x")
    assert [item.annotation for item in found.parameters] == ["int", "list[int]", "int | None"]


def test_what_supplies_itself_is_left_out_for_optimizers() -> None:
    def make(params, lr: float = 0.1) -> None: ...

    found = read_signature(Factory("optimizer", "mine", "x", "make", object=make))
    assert [item.name for item in found.parameters] == ["lr"]


def test_a_callable_without_a_signature_is_unknown() -> None:
    assert not live_signature(iter, owner="iter").known


def test_every_kind_of_parameter_is_told_apart() -> None:
    def factory(a, /, b, *layers: int, c=1, **rest): ...

    signature = live_signature(factory, owner="f")
    kinds = [(item.name, item.kind) for item in signature.parameters]
    assert kinds == [("a", "positional"), ("b", "keyword"), ("layers", "variadic"), ("c", "named")]
    assert signature.variadic is not None
    assert (signature.variadic.annotation, signature.open) == ("list[int]", True)
