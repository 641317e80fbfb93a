from __future__ import annotations

import ast
import os

from epochal.registry import parsed_module
from epochal.registry.module_finder import ModuleFinder
from epochal.registry.parsed_module import Definition, Import, Variable, full_name, read_module


def test_bindings_are_classes_functions_imports_or_variables(write_files) -> None:
    folder = write_files({"m.py": "import os\nx: int = 3\ny = z = 4\nclass C: pass\na: str"})
    finder = ModuleFinder([folder])
    module = finder.find_module("m")
    assert module is not None
    kinds = {name: type(finder.resolve(module, name)) for name in ("os", "x", "z", "C", "a")}
    nothing = type(None)
    assert kinds == {"os": Import, "x": Variable, "z": Variable, "C": Definition, "a": nothing}


def test_an_unreadable_module_has_an_error_and_no_names(write_files) -> None:
    folder = write_files({"m.py": "class C:\n  def f(:\n"})
    module = ModuleFinder([folder]).find_module("m")
    assert module.error.lineno == 2
    assert not module.bindings


def test_hostile_text_is_an_error_and_no_crash(tmp_path) -> None:
    for content in (b"x = '\0'", b"# coding: nonsense", b"x = " + b"(" * 5000):
        (tmp_path / "m.py").write_bytes(content)
        module = ModuleFinder([tmp_path]).find_module("m")
        assert module.error is not None, content


def test_a_changed_file_is_read_again(tmp_path) -> None:
    file = tmp_path / "m.py"
    file.write_text("class A: pass")
    assert ModuleFinder([tmp_path]).find_definition("m.A") is not None
    file.write_text("class Other: pass")
    os.utime(file, ns=(1, 1))
    assert ModuleFinder([tmp_path]).find_definition("m.A") is None


def test_a_place_shows_the_line_of_a_definition(write_files) -> None:
    folder = write_files({"m.py": "x = 1\nclass Model:\n    pass\n"})
    definition = ModuleFinder([folder]).find_definition("m.Model")
    place = definition.module.place(definition.node, word="Model")
    assert (place.line, place.column, place.text, place.width) == (2, 7, "class Model:", 5)


def test_full_names_follow_import_aliases(write_files) -> None:
    text = "import torch.nn as nn\nimport os.path\nfrom a import b as c\nclass D: pass"
    module = ModuleFinder([write_files({"m.py": text})]).find_module("m")
    assert module is not None
    written = ("nn.Module", "os.path.join", "c.x", "D", "int", "f().x")
    expected = ["torch.nn.Module", "os.path.join", "a.b.x", "m.D", "int", ""]
    assert [full_name(module, ast.parse(w, mode="eval").body) for w in written] == expected


def test_only_the_newest_version_of_a_file_is_kept(tmp_path) -> None:
    file = tmp_path / "edited.py"
    counts = []
    for name in ("a", "bb", "ccc"):
        file.write_text(f"{name} = 1\n")
        one, again = (read_module("edited", file, is_package=False) for _ in range(2))
        assert [*one.bindings] == [name]
        assert one is again, "it is parsed once"
        counts.append(len(parsed_module._read))
    assert len({*counts}) == 1
