from __future__ import annotations

import sys

from epochal.registry.module_finder import ModuleFinder, cached_by_finder
from epochal.registry.parsed_module import Definition, Import

# A finder in the manner of the large ones: stars of stars, lazy at run time, __all__ everywhere.
LAZY = """
    from typing import TYPE_CHECKING
    if TYPE_CHECKING:
        from .models import *
    else:
        globals()["__getattr__"] = None
"""
BIG = {
    "big/__init__.py": LAZY,
    "big/models/__init__.py": "from .bert import *\nfrom .gpt import *\nfrom .auto import *",
    "big/models/bert/__init__.py": "from .config import *\nfrom .model import *",
    "big/models/bert/config.py": "__all__ = ['BertConfig']\nclass BertConfig: pass",
    "big/models/bert/model.py": """
        from .config import BertConfig
        __all__ = ['Bert']
        class Layer: pass
        class Bert:
            def __init__(self, config: BertConfig): ...
    """,
    "big/models/gpt.py": """
        from .bert.config import BertConfig
        from .registered import register
        __all__ = ['Gpt']
        class Layer: pass
        class Gpt: pass
        @register
        def gpt_small(): ...
    """,
    "big/models/auto.py": """
        __all__ = ['Auto', 'Known']
        class Known: pass
        class Auto: pass
        Auto = update(Auto, doc="auto")
        Alias = Auto
    """,
    "big/models/registered.py": "raise SystemExit('not to be read')\nclass Unrelated: pass",
}


def test_definitions_are_found_through_every_kind_of_import(write_files) -> None:
    folder = write_files(
        {
            "p/__init__.py": "from .a import A as Alias\nfrom p.b import *\nfrom . import b",
            "p/a.py": "class A: pass",
            "p/b.py": """
                from typing import TYPE_CHECKING
                if TYPE_CHECKING:
                    from .a import A as Typed
                try:
                    from fast import B
                except ImportError:
                    class B: pass
                def make(): ...
                def _private(): ...
            """,
        }
    )
    finder = ModuleFinder([folder])
    for dotted in ("p.Alias", "p.Typed", "p.b.Typed"):
        found = finder.find_definition(dotted)
        assert found.dotted == "p.a.A"
    assert finder.find_definition("p.make") is not None
    assert finder.find_definition("p._private") is None
    assert finder.find_definition("p.b") is None


def test_circular_imports_find_nothing(write_files) -> None:
    folder = write_files({"a.py": "from b import X", "b.py": "from a import X"})
    finder = ModuleFinder([folder])
    module = finder.find_module("a")
    assert module is not None
    assert isinstance(finder.resolve(module, "X"), Import)


def test_installed_packages_are_found_without_importing_them() -> None:
    before = set(sys.modules)
    finder = ModuleFinder()
    found = finder.find_definition("jsonschema.validators.RefResolver")
    assert found is not None or finder.find_module("jsonschema.validators") is not None
    assert finder.find_module("no_such_package") is None
    assert not any(name.startswith("jsonschema") for name in set(sys.modules) - before)


def test_a_folder_of_the_user_never_hides_torch_or_the_standard_library(write_files) -> None:
    folder = write_files({"torch/__init__.py": "class Fake: pass", "json.py": "class Fake: pass"})
    finder = ModuleFinder([folder])
    assert finder.find_definition("torch.Fake") is None
    assert finder.find_definition("json.Fake") is None


def test_public_names_include_what_stars_bring(write_files) -> None:
    files = {"a.py": "from b import *\nclass A: pass\nx = 1", "b.py": "def f(): ...\ndef _g(): ..."}
    finder = ModuleFinder([write_files(files)])
    module = finder.find_module("a")
    assert module is not None
    assert finder.public_names(module) == {"A": "a", "f": "b"}
    assert finder.submodules("epochal") >= {"errors", "config", "registry"}


def test_nested_star_imports_lead_to_the_defining_module(write_files) -> None:
    for dotted, home in (
        ("big.BertConfig", "big.models.bert.config.BertConfig"),
        ("big.Bert", "big.models.bert.model.Bert"),
        ("big.models.Gpt", "big.models.gpt.Gpt"),
        ("big.gpt_small", "big.models.gpt.gpt_small"),
        ("big.Auto", "big.models.auto.Auto"),
        ("big.Layer", "big.models.gpt.Layer"),
    ):
        found = ModuleFinder([write_files(BIG)]).find_definition(dotted)
        assert found.dotted == home


def test_only_modules_that_may_hold_the_name_are_parsed(write_files) -> None:
    folder = write_files(BIG)
    for file in ("gpt.py", "auto.py", "bert/model.py"):
        text = (folder / "big/models" / file).read_text()
        (folder / "big/models" / file).write_text(f"{text}\nthis cannot be parsed\n")
    found = ModuleFinder([folder]).find_definition("big.BertConfig")
    assert found.dotted == "big.models.bert.config.BertConfig"


def test_a_listed_name_wins_over_a_helper_of_the_same_name(write_files) -> None:
    files = {
        "p/__init__.py": "from .a import *\nfrom .b import *",
        "p/a.py": "__all__ = ['Block']\nclass Block: pass",
        "p/b.py": "__all__ = ['Net']\nclass Block: pass\nclass Net: pass",
    }
    found = ModuleFinder([write_files(files)]).find_definition("p.Block")
    assert found.dotted == "p.a.Block"


def test_an_extended_all_may_hold_any_name(write_files) -> None:
    for addition in ("__all__ += ['B']", "__all__.extend(['B'])"):
        files = {
            "p.py": "from a import *\nfrom b import *",
            "a.py": "class B: pass",
            "b.py": f"__all__ = ['A']\n{addition}\nclass B: pass",
        }
        found = ModuleFinder([write_files(files)]).find_definition("p.B")
        assert found.dotted == "b.B", addition


def test_a_class_that_a_call_replaces_counts_as_decorated(write_files) -> None:
    folder = write_files({"m.py": "class A: pass\nA = update(A)\nclass B: pass\nB = update()"})
    finder = ModuleFinder([folder])
    module = finder.find_module("m")
    changed = finder.resolve(module, "A")
    assert isinstance(changed, Definition)
    assert len(changed.node.decorator_list) == 1
    assert not isinstance(finder.resolve(module, "B"), Definition)
    assert not getattr(module.tree.body[0], "decorator_list", None)  # the tree is shared


def test_a_name_may_be_dynamic_only_if_it_is_mentioned_or_source_is_missing(write_files) -> None:
    files = BIG | {"seen.py": "class A: pass", "blind/__init__.py": "from .compiled import *"}
    finder = ModuleFinder([write_files(files)])
    for module, name, may_hide in (
        ("big", "NoSuchThing", False),
        ("big", "register", True),
        ("blind", "NoSuchThing", True),
        ("seen", "register", False),
    ):
        found = finder.find_module(module)
        assert found is not None
        assert finder.may_hide(found, name) is may_hide, (module, name)


def test_only_results_about_torch_and_epochal_are_shared_by_finders() -> None:
    calls: list[str] = []

    @cached_by_finder
    def count(dotted: str, finder: ModuleFinder) -> int:
        calls.append(dotted)
        return len(calls)

    one, other = ModuleFinder(), ModuleFinder()
    for dotted, is_shared in (("torch.nn.Linear", True), ("epochal.Task", True), ("shop.A", False)):
        assert count(dotted, one) == count(dotted, one), dotted
        assert (count(dotted, one) == count(dotted, other)) == is_shared, dotted
