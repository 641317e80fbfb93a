from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from epochal.registry.source import Definition, Import, Library, Variable, full_name, shown_path

Write = Callable[[Mapping[str, str]], Path]


def test_definitions_are_found_through_every_kind_of_import(write_files: Write) -> None:
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
    library = Library([folder])
    for dotted in ("p.Alias", "p.Typed", "p.b.Typed"):
        found = library.find_definition(dotted)
        assert found is not None
        assert found.dotted == "p.a.A"
    assert library.find_definition("p.make") is not None
    assert library.find_definition("p._private") is None
    assert library.find_definition("p.b") is None


def test_a_circle_of_imports_leads_nowhere(write_files: Write) -> None:
    folder = write_files({"a.py": "from b import X", "b.py": "from a import X"})
    library = Library([folder])
    module = library.find_module("a")
    assert module is not None
    assert isinstance(library.resolve(module, "X"), Import)


def test_names_are_told_apart_by_what_binds_them(write_files: Write) -> None:
    folder = write_files({"m.py": "import os\nx: int = 3\ny = z = 4\nclass C: pass\na: str"})
    library = Library([folder])
    module = library.find_module("m")
    assert module is not None
    kinds = {name: type(library.resolve(module, name)) for name in ("os", "x", "z", "C", "a")}
    nothing = type(None)
    assert kinds == {"os": Import, "x": Variable, "z": Variable, "C": Definition, "a": nothing}


def test_an_unreadable_module_has_an_error_and_no_names(write_files: Write) -> None:
    folder = write_files({"m.py": "class C:\n  def f(:\n"})
    module = Library([folder]).find_module("m")
    assert module is not None
    assert module.error is not None
    assert module.error.lineno == 2
    assert not module.bindings


@pytest.mark.parametrize("content", [b"x = '\0'", b"# coding: nonsense", b"x = " + b"(" * 5000])
def test_hostile_text_is_an_error_and_no_crash(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.py").write_bytes(content)
    module = Library([tmp_path]).find_module("m")
    assert module is not None
    assert module.error is not None


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("class A: pass")
    assert Library([tmp_path]).find_definition("m.A") is not None
    file.write_text("class Other: pass")
    os.utime(file, ns=(1, 1))
    assert Library([tmp_path]).find_definition("m.A") is None


def test_installed_packages_are_found_without_importing_them() -> None:
    before = set(sys.modules)
    library = Library()
    found = library.find_definition("jsonschema.validators.RefResolver")
    assert found is not None or library.find_module("jsonschema.validators") is not None
    assert library.find_module("no_such_package") is None
    assert not any(name.startswith("jsonschema") for name in set(sys.modules) - before)


def test_a_folder_of_the_user_never_hides_torch_or_the_standard_library(write_files: Write) -> None:
    folder = write_files({"torch/__init__.py": "class Fake: pass", "json.py": "class Fake: pass"})
    library = Library([folder])
    assert library.find_definition("torch.Fake") is None
    assert library.find_definition("json.Fake") is None


def test_a_place_shows_the_line_of_a_definition(write_files: Write) -> None:
    folder = write_files({"m.py": "x = 1\nclass Model:\n    pass\n"})
    definition = Library([folder]).find_definition("m.Model")
    assert definition is not None
    place = definition.module.place(definition.node, word="Model")
    assert (place.line, place.column, place.text, place.width) == (2, 7, "class Model:", 5)


def test_full_names_follow_import_aliases(write_files: Write) -> None:
    text = "import torch.nn as nn\nimport os.path\nfrom a import b as c\nclass D: pass"
    module = Library([write_files({"m.py": text})]).find_module("m")
    assert module is not None
    written = ("nn.Module", "os.path.join", "c.x", "D", "int", "f().x")
    expected = ["torch.nn.Module", "os.path.join", "a.b.x", "m.D", "int", ""]
    assert [full_name(module, ast.parse(w, mode="eval").body) for w in written] == expected


def test_public_names_include_what_stars_bring(write_files: Write) -> None:
    files = {"a.py": "from b import *\nclass A: pass\nx = 1", "b.py": "def f(): ...\ndef _g(): ..."}
    library = Library([write_files(files)])
    module = library.find_module("a")
    assert module is not None
    assert library.public_names(module) == {"A", "f"}
    assert library.submodules("epochal") >= {"errors", "config", "registry"}


def test_paths_below_the_current_folder_are_shown_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown_path(tmp_path / "a" / "b.py") == os.path.join("a", "b.py")  # noqa: PTH118
    assert shown_path(Path("/elsewhere/c.py")) == "/elsewhere/c.py"
