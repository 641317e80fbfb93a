from __future__ import annotations

import ast

from epochal.check.signatures.docstrings import doc_of, field_docs, parse_argument_docs, summary_of
from epochal.registry.module_finder import ModuleFinder

GOOGLE = """Two layers and
a head.

More words: not an argument.

Args:
    width: Units of the
        hidden layer.
    lr (float, optional): learning rate (default: 1e-3)
    **kwargs: Passed on.

Returns:
    nothing: at all
"""


def test_the_summary_is_the_first_paragraph_on_one_line() -> None:
    assert summary_of(GOOGLE) == "Two layers and a head."
    assert summary_of("") == ""


def test_google_arguments_are_read_with_their_continuation_lines() -> None:
    assert parse_argument_docs(GOOGLE) == {
        "width": "Units of the hidden layer.",
        "lr": "learning rate (default: 1e-3)",
        "kwargs": "Passed on.",
    }


def test_text_outside_the_arguments_section_is_ignored() -> None:
    assert parse_argument_docs("width: Units.") == {}


def test_strings_under_fields_are_their_documentation() -> None:
    text = 'class A:\n  x: int = 1\n  """How\n  many."""\n  y: int = 2\n  z = 3\n  """no"""'
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.ClassDef)
    assert field_docs(node) == {"x": "How many."}


def test_a_docstring_assigned_below_the_class_is_found() -> None:
    finder = ModuleFinder()
    adamw = finder.find_definition("torch.optim.AdamW")
    assert adamw is not None
    doc = doc_of(adamw.module, adamw.node)
    assert summary_of(doc).startswith("Implements AdamW")
    assert "learning rate" in parse_argument_docs(doc)["lr"]
