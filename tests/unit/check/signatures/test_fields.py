from __future__ import annotations


def names(signature) -> list[str]:
    return [item.name for item in signature.parameters]


HEAD = """
    from dataclasses import InitVar, dataclass, field
    from nowhere import Base, strict
"""


def test_only_dataclasses_have_fields(signature_of) -> None:
    text = f"""{HEAD}
    class Plain:
        hidden: int = 1
        def __init__(self, other): ...
    @dataclass
    class Root(Plain):
        depth: int = 2
        gone: int = 3
        size: InitVar[int] = 4
    class Between(Root):
        unseen: int = 5
    @dataclass
    class Leaf(Between):
        depth: float = 6.0
        gone: "ClassVar[int]" = 7
    """
    found = signature_of(text, "Leaf")
    assert (names(found), found.open) == (["size", "depth"], False)
    depth = found.get("depth")
    assert depth is not None
    assert (depth.annotation, depth.default) == ("float", 6.0)


def test_an_unknown_base_makes_the_fields_open(signature_of) -> None:
    text = f"""{HEAD}
    @dataclass
    class Unread(Base):
        size: int = 1
    @strict
    class Odd:
        depth: int = 1
    @dataclass
    class Leaf(Odd):
        size: int = 1
    """
    for name in ("Unread", "Leaf"):
        found = signature_of(text, name)
        assert (names(found), found.open, found.known) == (["size"], True, True)


def test_a_dataclass_without_a_generated_constructor_inherits_one(signature_of) -> None:
    text = f"""{HEAD}
    class Root:
        def __init__(self, depth): ...
    @dataclass(init=False)
    class Leaf(Root):
        size: int = 1
    @dataclass
    class Own:
        size: int = 1
        def __init__(self, width): ...
    """
    assert names(signature_of(text, "Leaf")) == ["depth"]
    assert names(signature_of(text, "Own")) == ["width"]
