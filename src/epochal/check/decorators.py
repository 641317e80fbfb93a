"""Which decorators leave the signature of what they decorate as it is."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from epochal.registry.parsed_module import full_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.registry.library import Library
    from epochal.registry.parsed_module import Definition, FunctionNode

_KNOWN = frozenset(
    {
        "abc.abstractmethod",
        "classmethod",
        "contextlib.contextmanager",
        "dataclasses.dataclass",
        "enum.unique",
        "epochal.register",
        "functools.cache",
        "functools.lru_cache",
        "functools.total_ordering",
        "staticmethod",
        "torch.enable_grad",
        "torch.inference_mode",
        "torch.no_grad",
        "warnings.deprecated",
    }
)
_KNOWN_MODULES = ("typing", "typing_extensions")


def is_plainly_decorated(definition: Definition, node: ast.stmt, library: Library) -> bool:
    """Whether no decorator of ``node``, in the definition's module, may change its signature."""
    listed: list[ast.expr] = getattr(node, "decorator_list", [])
    return all(_keeps_signature(decorator, definition, library) for decorator in listed)


def _keeps_signature(decorator: ast.expr, owner: Definition, library: Library) -> bool:
    called = isinstance(decorator, ast.Call)
    name = full_name(owner.module, decorator.func if isinstance(decorator, ast.Call) else decorator)
    if name in _KNOWN or name.rpartition(".")[0] in _KNOWN_MODULES:
        return True
    found = library.find_definition(name)
    if found is None or isinstance(found.node, ast.ClassDef):
        return False
    if not called:
        return _returns_its_argument(found.node)
    inner = {item.name: item for item in found.node.body if isinstance(item, ast.FunctionDef)}
    made = [inner.get(getattr(value, "id", "")) for value in _returned(found.node)]
    return bool(made) and all(item is not None and _returns_its_argument(item) for item in made)


def _returns_its_argument(function: FunctionNode) -> bool:
    first = [*function.args.posonlyargs, *function.args.args][:1]
    values = list(_returned(function))
    if not first or not values:
        return False
    name = first[0].arg
    is_rebound = any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        for node in ast.walk(function)
    )
    return not is_rebound and all(getattr(value, "id", "") == name for value in values)


def _returned(function: FunctionNode) -> Iterator[ast.expr | None]:
    """What the function returns, not what functions inside it do."""
    waiting: list[ast.AST] = [*function.body]
    for node in waiting:
        if isinstance(node, ast.Return):
            yield node.value
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))
