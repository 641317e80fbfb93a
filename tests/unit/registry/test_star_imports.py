from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from epochal.registry.star_imports import (
    BINDS,
    DEFINES,
    StarImports,
    absolute_name,
    binding_of,
    mentions,
    star_imports,
)

if TYPE_CHECKING:
    from pathlib import Path


BINDINGS = [
    ("class Net: pass", DEFINES), ("    async  def Net(): ...", DEFINES),
    ("x = Net()\nclass Net: pass", DEFINES), ("class Network: pass", 0),
    ("from a import Net", BINDS), ("from a import (B, C as Net)", BINDS),
    ("from a import (\n    B, Net,\n)", BINDS), ("Net = 3", BINDS), ("Net: type = make()", BINDS),
    ("with open() as Net: pass", BINDS), ("def f(x: Net): return [Net]", 0),
    ("    raise TypeError('Net')", 0), ("", 0),
]  # fmt: skip


def test_source_is_searched_for_names_that_it_may_bind() -> None:
    for text, answer in BINDINGS:
        assert binding_of(b"\n" + text.encode(), "Net") == answer


def test_star_imports_are_read_from_bytes() -> None:
    text = b"from .a import *\n    from ..b.c import *\nfrom d import *\nfrom e import x\n# *"
    assert list(star_imports(text, "p.q")) == ["p.q.a", "p.b.c", "d"]
    assert list(star_imports(b"from .a import b", "p")) == []


def test_relative_names_become_absolute() -> None:
    assert absolute_name("a", 0, "p") == "a"
    assert absolute_name("a", 1, "p.q") == "p.q.a"
    assert absolute_name("", 2, "p.q") == "p"


@pytest.fixture
def stars(tmp_path: Path) -> StarImports:
    texts = {
        "a": "from b import *\nclass A: pass",
        "b": "from a import *\nfrom c import *\ndef _hidden(): ...",
        "c": "__all__ = ['C', \n  \"D\"]\nclass C: pass\nclass Inner: pass\n@put\ndef E(): ...",
        "blind": "from compiled import *",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)

    def locate(dotted: str) -> tuple[Path, bool] | None:
        return (tmp_path / f"{dotted}.py", False) if dotted in texts else None

    return StarImports(locate)


def test_circular_star_imports_are_followed(stars) -> None:
    assert stars.may_offer("a", "C", defined=True)
    assert stars.may_offer("b", "A", defined=True)
    assert not stars.may_offer("c", "A", defined=False)
    assert not stars.may_offer("nowhere", "A", defined=False)


def test_offered_names_are_listed_registered_or_defined(stars) -> None:
    assert dict(stars.offered("a")) == {"A": "a", "C": "c", "D": "c", "E": "c"}


def test_star_imports_without_source_are_detected(stars) -> None:
    assert stars.lacks_source("blind")
    assert not stars.lacks_source("a")


def test_a_folder_mentions_what_any_of_its_sources_holds(tmp_path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.pyi").write_text("lazy = ['Thing']")
    (tmp_path / "note.txt").write_text("Other")
    assert mentions(tmp_path, "Thing")
    assert not mentions(tmp_path, "Other")
