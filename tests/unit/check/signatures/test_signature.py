"""Signatures of components, read from source."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from typing import TYPE_CHECKING

from epochal.check import MISSING, Opaque, Signature, read_signature
from epochal.check.signatures.classes import class_definitions
from epochal.check.signatures.signature import live_signature
from epochal.registry import Factory, Project, Registry

if TYPE_CHECKING:
    from pathlib import Path


def names(signature: Signature) -> list[str]:
    return [item.name for item in signature.parameters]


def test_a_constructor_is_read_with_types_defaults_and_docs(signature_of) -> None:
    text = '''
        class Mlp:
            """Two layers.

            Args:
                width: Units.
            """
            def __init__(self, width: int, drop: float = 0.1, *, act=make(), for_="1ep"): ...
    '''
    found = signature_of(text, "Mlp")
    assert (found.owner, found.summary, found.open) == ("m.Mlp", "Two layers.", False)
    width, drop, act, for_ = found.parameters
    assert (width.annotation, width.default, width.doc, width.is_required) == (
        "int",
        MISSING,
        "Units.",
        True,
    )
    assert (drop.annotation, drop.default, drop.is_required) == ("float", 0.1, False)
    assert act.default == Opaque("make()")
    assert (for_.name, for_.argument) == ("for", "for_")


def test_a_function_can_be_a_factory(signature_of) -> None:
    found = signature_of(
        'def make(size, /, *, deep: bool = False, **rest):\n    """Makes."""', "make"
    )
    assert [(item.name, item.kind) for item in found.parameters] == [
        ("size", "positional"),
        ("deep", "named"),
    ]
    assert found.open
    assert found.summary == "Makes."


def test_a_constructor_is_inherited_from_the_bases(signature_of) -> None:
    text = """
        from typing import Generic, TypeVar
        T = TypeVar("T")
        class Root(Generic[T]):
            def __init__(self, depth: int = 2): ...
        class Middle(Root[int]): pass
        class Leaf(Middle): pass
    """
    assert names(signature_of(text, "Leaf")) == ["depth"]


def test_a_module_without_a_constructor_takes_nothing(signature_of) -> None:
    found = signature_of("from torch import nn\nclass Net(nn.Module): pass", "Net")
    assert (names(found), found.open) == ([], False)


def test_a_base_that_cannot_be_read_makes_the_signature_unknown(signature_of) -> None:
    found = signature_of("from nowhere import Base\nclass Net(Base): pass", "Net")
    assert (names(found), found.open) == ([], True)


def test_forwarded_keyword_arguments_add_those_of_the_base(signature_of) -> None:
    text = """
        class Root:
            def __init__(self, depth: int, width: int = 8, act: str = "relu"): ...
        class Leaf(Root):
            def __init__(self, heads: int = 4, **options):
                super().__init__(2, act="gelu", **options)
        class Loose(Root):
            def __init__(self, **options): self.options = options
    """
    leaf, loose = signature_of(text, "Leaf"), signature_of(text, "Loose")
    assert (names(leaf), leaf.open) == (["heads", "width"], False)
    assert (names(loose), loose.open) == ([], True)


def test_dataclasses_are_read_field_by_field(signature_of) -> None:
    text = '''
        import dataclasses
        from dataclasses import dataclass, field, KW_ONLY
        from typing import ClassVar

        @dataclass
        class Root:
            depth: int = 2

        @dataclasses.dataclass(frozen=True)
        class Options(Root):
            count: ClassVar[int] = 0
            _: KW_ONLY
            width: int
            """Units."""
            names: list[str] = field(default_factory=list)
            cache: dict = field(init=False)
            for_: str = "1ep"
    '''
    found = signature_of(text, "Options")
    assert names(found) == ["depth", "width", "names", "for"]
    width = found.get("width")
    assert width is not None
    assert (width.doc, width.is_required) == ("Units.", True)
    assert found.get("nothing") is None


def public_classes(module: str) -> list[str]:
    found = vars(importlib.import_module(module))
    return [
        f"{module}.{name}"
        for name, value in sorted(found.items())
        if isinstance(value, type) and value.__module__.startswith(module) and name[0] != "_"
    ]


TORCH = [
    *public_classes("torch.optim"),
    *public_classes("torch.optim.lr_scheduler"),
    *(f"torch.nn.{name}" for name in ("Linear", "Conv2d", "TransformerEncoderLayer", "GELU")),
    *(f"torch.nn.{name}" for name in ("BatchNorm1d", "CrossEntropyLoss", "MultiheadAttention")),
    *(f"torch.utils.data.{name}" for name in ("DataLoader", "Subset", "TensorDataset")),
]


def test_signatures_of_torch_equal_those_of_inspect(tmp_path: Path) -> None:
    for dotted in TORCH:
        registry = Registry(Project(tmp_path))
        found = read_signature(registry.find("component", dotted), registry.finder)
        module, _, name = dotted.rpartition(".")
        real = inspect.signature(getattr(importlib.import_module(module), name)).parameters
        named = {key: item for key, item in real.items() if item.kind is not item.VAR_KEYWORD}
        assert found.open == any(item.kind is item.VAR_KEYWORD for item in real.values()), dotted
        assert {item.argument: item.is_required for item in found.parameters} == {
            key: item.default is item.empty and item.kind is not item.VAR_POSITIONAL
            for key, item in named.items()
        }, dotted
        for item in found.parameters:
            if not isinstance(item.default, Opaque | type(MISSING)) and item.kind != "variadic":
                default = named[item.argument].default
                assert item.default == (list(default) if isinstance(default, tuple) else default), (
                    dotted
                )


def test_arguments_that_the_builder_passes_are_no_keys(tmp_path: Path) -> None:
    for kind, name, supplied in (
        ("optimizer", "AdamW", "params"),
        ("schedule", "StepLR", "optimizer"),
    ):
        registry = Registry(Project(tmp_path))
        found = read_signature(registry.find(kind, name), registry.finder)
        assert found.get(supplied) is None
        assert found.parameters, kind


def test_forwarded_arguments_of_a_recurrent_layer_are_known(tmp_path: Path) -> None:
    registry = Registry(Project(tmp_path))
    found = read_signature(registry.find("model", "torch.nn.LSTM"), registry.finder)
    assert {"input_size", "hidden_size", "proj_size"} <= set(names(found))
    assert "mode" not in names(found)


def test_a_factory_without_source_has_an_unknown_signature() -> None:
    found = read_signature(Factory("model", "x.Y", "x", "Y"))
    assert (found.parameters, found.open) == ((), True)


def test_the_definitions_of_a_class_are_complete_if_all_bases_are_found(write_files) -> None:
    text = "from nowhere import Base\nclass A: pass\nclass B(A, Base): pass\nclass C(A): pass"
    registry = Registry(Project(write_files({"m.py": text})))
    broken = registry.finder.find_definition("m.B")
    whole = registry.finder.find_definition("m.C")
    assert broken is not None
    assert whole is not None
    chain, complete = class_definitions(broken, registry.finder)
    assert ([item.node.name for item in chain], complete) == (["B", "A"], False)
    assert class_definitions(whole, registry.finder)[1]


def test_positional_values_have_the_name_of_the_signature(signature_of) -> None:
    for text, names, variadic in (
        (
            "class C:\n    def __init__(self, a, *parts_: int, b=1): ...",
            ["a", "parts", "b"],
            "parts_",
        ),
        # passed on by position and by name: the base's own
        (
            "class B:\n    def __init__(self, x, *rest): ...\n"
            "class C(B):\n"
            "    def __init__(self, a, *args, k=1, **kw): super().__init__(*args, **kw)",
            ["a", "k", "x", "rest"],
            "rest",
        ),
        # passed on by name only: what the base takes by position cannot be reached
        (
            "class B:\n    def __init__(self, x, *rest): ...\n"
            "class C(B):\n    def __init__(self, a, **kw): super().__init__(**kw)",
            ["a", "x"],
            None,
        ),
        (
            "class B:\n    def __init__(self, x): ...\n"
            "class C(B):\n    def __init__(self, *own, **kw): super().__init__(**kw)",
            ["own", "x"],
            "own",
        ),
    ):
        signature = signature_of(text, "C")
        assert [item.name for item in signature.parameters] == names
        found = signature.variadic
        assert (found and found.argument) == variadic


def test_positional_values_are_a_list_of_the_annotated_type(signature_of) -> None:
    signature = signature_of("def f(*sizes: int): ...", "f")
    assert (signature.variadic.annotation, signature.variadic.default) == ("list[int]", [])
    assert not signature.variadic.is_required


class Mlp:
    """Two layers.

    Args:
        width: Units.
    """

    def __init__(self, width: int, act=object, for_: str = "1ep", **rest: int) -> None: ...


def test_a_live_class_is_read_with_inspect() -> None:
    found = read_signature(Factory("model", "Mlp", __name__, "Mlp", object=Mlp))
    width, act, for_ = found.parameters
    assert (width.annotation, width.default, width.doc) == ("int", MISSING, "Units.")
    assert isinstance(act.default, Opaque)
    assert (for_.name, for_.argument, for_.default) == ("for", "for_", "1ep")
    assert (found.open, found.summary) == (True, "Two layers.")


def test_annotations_that_are_objects_become_text() -> None:
    made = dataclasses.make_dataclass("Made", [("a", int), ("b", list[int]), ("c", int | None)])
    found = live_signature(made, owner="x")
    assert [item.annotation for item in found.parameters] == ["int", "list[int]", "int | None"]


def test_the_parameters_of_an_optimizer_are_no_key() -> None:
    def make(params, lr: float = 0.1) -> None: ...

    found = read_signature(Factory("optimizer", "mine", "x", "make", object=make))
    assert [item.name for item in found.parameters] == ["lr"]


def test_a_callable_without_a_signature_is_unknown() -> None:
    found = live_signature(iter, owner="iter")
    assert (found.parameters, found.open) == ((), True)


def test_every_kind_of_parameter_is_recognised() -> None:
    def factory(a, /, b, *layers: int, c=1, **rest): ...

    signature = live_signature(factory, owner="f")
    kinds = [(item.name, item.kind) for item in signature.parameters]
    assert kinds == [("a", "positional"), ("b", "keyword"), ("layers", "variadic"), ("c", "named")]
    assert signature.variadic is not None
    assert (signature.variadic.annotation, signature.open) == ("list[int]", True)


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
        assert (names(found), found.open) == (["size"], True)


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
