"""Parses docstrings: the summary of a component and the text about each argument."""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.registry.parsed_module import DefinitionNode, Module

_HEADINGS = ("args", "arguments", "parameters", "keyword args", "keyword arguments")
_ENTRY = re.compile(r"\*{0,2}`{0,2}(\w+)`{0,2}\s*(?:\([^)]*\))?\s*:\s*(.*)")


def doc_of(module: Module, node: DefinitionNode) -> str:
    """The docstring of a definition, or the text assigned to its ``__doc__``."""
    direct = ast.get_docstring(node)
    if direct:
        return direct
    for statement in module.tree.body:
        if isinstance(statement, ast.Assign) and _is_doc_of(statement.targets[0], node.name):
            return inspect.cleandoc(_joined(statement.value))
    return ""


def summary_of(doc: str) -> str:
    """The first paragraph as one line."""
    return " ".join(doc.strip().split("\n\n")[0].split())


def parse_argument_docs(doc: str) -> dict[str, str]:
    """The text of each entry under ``Args:``, by argument."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line, indent, entry_indent in _section_lines(doc.splitlines()):
        entry = _ENTRY.match(line) if indent == entry_indent else None
        if entry is not None:
            current = found.setdefault(entry[1], [])
            current.append(entry[2])
        elif current is not None and indent > entry_indent:
            current.append(line)
    return {name: " ".join(" ".join(lines).split()) for name, lines in found.items()}


def field_docs(node: ast.ClassDef) -> dict[str, str]:
    """The string below each annotated field of a class body."""
    docs = {}
    for statement, below in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            docs[statement.target.id] = " ".join(inspect.cleandoc(below.value.value).split())
    return docs


def _section_lines(lines: Sequence[str]) -> list[tuple[str, int, int]]:
    """The lines under the heading, each with its indent and that of the first entry."""
    found: list[tuple[str, int, int]] = []
    heading = entry = -1
    for line in lines:
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if heading < 0 and text.rstrip(":").lower() in _HEADINGS and text.endswith(":"):
            heading = indent
        elif heading >= 0 and text:
            if indent <= heading:
                break
            entry = indent if entry < 0 else entry
            found.append((text, indent, entry))
    return found


def _is_doc_of(target: ast.expr, name: str) -> bool:
    return (
        isinstance(target, ast.Attribute)
        and target.attr == "__doc__"
        and isinstance(target.value, ast.Name)
        and target.value.id == name
    )


def _joined(expression: ast.expr) -> str:
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        return expression.value
    if isinstance(expression, ast.JoinedStr):
        return "".join(_joined(value) for value in expression.values)
    if isinstance(expression, ast.BinOp):
        return _joined(expression.left) + _joined(expression.right)
    return ""
