"""Reads classes from source: their MRO, the names they bind, and their decorators."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from epochal.registry.module_finder import ModuleFinder, cached_by_finder
from epochal.registry.parsed_module import full_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from epochal.registry.parsed_module import Definition, DefinitionNode, FunctionNode

# Bases that do not affect the constructor.
_PLAIN_BASES = ("object", "Generic", "Protocol", "ABC")
_PLAIN_MODULES = ("typing", "typing_extensions", "collections.abc", "abc")
_BUILDERS = ("NamedTuple", "TypedDict")
_PLAIN_METACLASSES = ("type", "abc.ABCMeta")


def find_mro(definition: Definition, finder: ModuleFinder) -> tuple[Definition | None, ...]:
    """A class and its bases in method resolution order; None for a base without source."""
    return tuple(_order(definition, finder, ()))


@cached_by_finder
def class_definitions(
    definition: Definition, finder: ModuleFinder
) -> tuple[list[Definition], bool]:
    """The MRO of a class without unknown bases, and whether it shows all of its methods."""
    order = find_mro(definition, finder)
    chain = [item for item in order if item is not None]
    complete = len(chain) == len(order) and all(
        decorators_keep_signature(item, item.node, finder)
        and not binds_name(item.node, "__getattr__")
        for item in chain
    )
    return chain, complete


def has_plain_construction(order: Sequence[Definition | None]) -> bool:
    """Whether no metaclass and no ``__init_subclass__`` can replace the constructor."""
    for item in order:
        if item is None or not isinstance(item.node, ast.ClassDef):
            continue
        if item is not order[0] and binds_name(item.node, "__init_subclass__"):
            return False
        for word in item.node.keywords:
            name = full_name(item.module, word.value)
            if word.arg == "metaclass" and name not in _PLAIN_METACLASSES:
                return False
    return True


def is_dataclass(definition: Definition) -> bool:
    """Whether ``dataclasses`` generates the constructor of a class."""
    for decorator in definition.node.decorator_list:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        if full_name(definition.module, call) == "dataclasses.dataclass":
            words = decorator.keywords if isinstance(decorator, ast.Call) else []
            return not any(word.arg == "init" and is_false(word.value) for word in words)
    return False


def is_false(expression: ast.expr) -> bool:
    """Whether an expression is the constant ``False``."""
    return isinstance(expression, ast.Constant) and expression.value is False


def find_method_node(node: DefinitionNode, name: str) -> FunctionNode | None:
    """The last method called ``name`` in a class body; None also for a function."""
    for statement in reversed(node.body if isinstance(node, ast.ClassDef) else []):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name:
            return statement
    return None


def binds_name(node: DefinitionNode, name: str) -> bool:
    """Whether a class body binds ``name`` in any way, also inside conditions."""
    waiting: list[ast.AST] = [*node.body] if isinstance(node, ast.ClassDef) else []
    for inner in waiting:
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if inner.name == name:
                return True
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            if inner.id == name:
                return True
        elif not isinstance(inner, ast.Lambda):
            waiting.extend(ast.iter_child_nodes(inner))
    return False


def _order(
    definition: Definition, finder: ModuleFinder, below: tuple[str, ...]
) -> list[Definition | None]:
    if definition.dotted in below:  # a cycle, which Python would refuse
        return []
    bases = list(_bases(definition, finder))
    orders: list[list[Definition | None]] = [
        [None] if base is None else _order(base, finder, (*below, definition.dotted))
        for base in bases
    ]
    return [definition, *_merge([*orders, bases])]


def _bases(definition: Definition, finder: ModuleFinder) -> Iterator[Definition | None]:
    node = definition.node
    for written in node.bases if isinstance(node, ast.ClassDef) else ():
        base = written.value if isinstance(written, ast.Subscript) else written
        name = full_name(definition.module, base)
        module, _, last = name.rpartition(".")
        if last in _PLAIN_BASES or (module in _PLAIN_MODULES and last not in _BUILDERS):
            continue
        found = finder.find_definition(name)
        yield found if found is not None and isinstance(found.node, ast.ClassDef) else None


def _merge(orders: list[list[Definition | None]]) -> Iterator[Definition | None]:
    """Each class before its bases, and bases in their written order (C3)."""
    orders = [order for order in orders if order]
    while orders:
        heads = [order[0] for order in orders]
        tails = {_name(item) for order in orders for item in order[1:]}
        chosen = next((head for head in heads if _name(head) not in tails), heads[0])
        yield chosen
        rest = [[item for item in order if _name(item) != _name(chosen)] for order in orders]
        orders = [order for order in rest if order]


def _name(item: Definition | None) -> str:
    return "" if item is None else item.dotted


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


def decorators_keep_signature(definition: Definition, node: ast.stmt, finder: ModuleFinder) -> bool:
    """Whether no decorator of ``node`` can change its signature."""
    listed: list[ast.expr] = getattr(node, "decorator_list", [])
    return all(_keeps_signature(decorator, definition, finder) for decorator in listed)


def _keeps_signature(decorator: ast.expr, owner: Definition, finder: ModuleFinder) -> bool:
    called = isinstance(decorator, ast.Call)
    name = full_name(owner.module, decorator.func if isinstance(decorator, ast.Call) else decorator)
    if name in _KNOWN or name.rpartition(".")[0] in _KNOWN_MODULES:
        return True
    found = finder.find_definition(name)
    if found is None or isinstance(found.node, ast.ClassDef):
        return False
    if not called:
        return _returns_its_argument(found.node)
    inner = {item.name: item for item in found.node.body if isinstance(item, ast.FunctionDef)}
    made = [inner.get(getattr(value, "id", "")) for value in returned_values(found.node)]
    return bool(made) and all(item is not None and _returns_its_argument(item) for item in made)


def _returns_its_argument(function: FunctionNode) -> bool:
    first = [*function.args.posonlyargs, *function.args.args][:1]
    values = list(returned_values(function))
    if not first or not values:
        return False
    name = first[0].arg
    is_rebound = any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        for node in ast.walk(function)
    )
    return not is_rebound and all(getattr(value, "id", "") == name for value in values)


def returned_values(function: FunctionNode) -> Iterator[ast.expr | None]:
    """The values that the function returns, without those of nested functions."""
    waiting: list[ast.AST] = [*function.body]
    for node in waiting:
        if isinstance(node, ast.Return):
            yield node.value
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))
