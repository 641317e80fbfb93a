"""The typed signature of a component, read from its text: the schema of its spec."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from epochal.check.docs import arguments_of, doc_of, field_docs, summary_of
from epochal.check.literals import MISSING, Absent, Opaque, Plain, read_field_default, read_literal
from epochal.registry.library import Library
from epochal.registry.source import Definition, Variable, full_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from epochal.registry.source import FunctionNode, Module
    from epochal.registry.table import Factory

# Given by whoever builds the component, so a config cannot set them.
_SUPPLIED = {"optimizer": ("params",), "schedule": ("optimizer",)}
_ALIASED = (ast.Subscript, ast.BinOp, ast.Name, ast.Attribute)
_PLAIN_BASES = ("object", "Generic", "Protocol", "ABC", "NamedTuple")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a component."""

    name: str
    """The key in a config: the argument's name without a trailing underscore."""

    annotation: str = ""
    """The type as it is written; empty when there is none."""

    default: Plain | Opaque | Absent = MISSING
    """What it is when left out; ``Opaque`` when only running the code could tell."""

    doc: str = ""
    kind: str = "keyword"
    """``keyword``, or ``positional`` when it cannot be given by name."""

    argument: str = ""
    """The name that the factory is called with."""

    @property
    def is_required(self) -> bool:
        """Whether a config must set it."""
        return self.default is MISSING


@dataclass(frozen=True, slots=True)
class Signature:
    """What a component can be given."""

    owner: str
    """Its full name, as shown in messages."""

    parameters: tuple[Parameter, ...] = ()
    open: bool = False
    """Whether it also takes arguments that it does not name."""

    known: bool = True
    """False when its text could not be read; then nothing can be checked."""

    summary: str = ""
    definition: Definition | None = field(default=None, compare=False, repr=False)

    def get(self, name: str) -> Parameter | None:
        """The parameter with this config key, if there is one."""
        return next((item for item in self.parameters if item.name == name), None)


def read_signature(factory: Factory, library: Library | None = None) -> Signature:
    """The signature of ``factory``, without importing it unless it is live already."""
    if factory.object is not None:
        from epochal.check.live import live_signature

        signature = live_signature(factory.object, owner=factory.dotted)
    else:
        library = library or Library()
        definition = library.find_definition(factory.dotted)
        if definition is None:
            return Signature(factory.dotted, open=True, known=False)
        signature = definition_signature(definition, library)
    supplied = _SUPPLIED.get(factory.kind, ())
    kept = tuple(item for item in signature.parameters if item.name not in supplied)
    return replace(signature, parameters=kept)


def definition_signature(definition: Definition, library: Library) -> Signature:
    """The signature of a class or function statement."""
    node = definition.node
    doc = doc_of(definition.module, node)
    if isinstance(node, ast.ClassDef):
        found = _of_class(definition, library, set()) or Signature(definition.dotted)
    else:
        found = _of_function(definition, node, bound=False)
        found = replace(found, parameters=_documented(found.parameters, arguments_of(doc)))
    return replace(found, owner=definition.dotted, summary=summary_of(doc), definition=definition)


def class_definitions(definition: Definition, library: Library) -> tuple[list[Definition], bool]:
    """A class and its bases in look-up order, and whether all of them could be read."""
    chain, complete = [definition], True
    seen = {definition.dotted}
    for current in chain:
        for base in _bases(current):
            found = library.find_definition(full_name(current.module, base))
            if found is None:
                complete = complete and _is_plain(base)
            elif found.dotted not in seen:
                seen.add(found.dotted)
                chain.append(found)
    return chain, complete


def _bases(definition: Definition) -> Iterator[ast.expr]:
    if isinstance(definition.node, ast.ClassDef):
        for base in definition.node.bases:
            yield base.value if isinstance(base, ast.Subscript) else base


def _is_plain(base: ast.expr) -> bool:
    name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
    return name in _PLAIN_BASES


def _of_class(definition: Definition, library: Library, seen: set[str]) -> Signature | None:
    """The constructor's signature; nothing when neither class nor bases define one."""
    node = definition.node
    if definition.dotted in seen or not isinstance(node, ast.ClassDef):
        return None
    seen.add(definition.dotted)
    if definition.dotted == "torch.nn.modules.module.Module":
        return None  # its *args and **kwargs are there to be refused
    if _is_dataclass(definition):
        return _of_fields(definition, library, seen)
    for name in ("__init__", "__new__"):
        function = method_of(node, name)
        if function is not None:
            return _of_constructor(definition, function, library, seen)
    return _of_bases(definition, library, seen)


def _of_bases(definition: Definition, library: Library, seen: set[str]) -> Signature | None:
    docs = arguments_of(doc_of(definition.module, definition.node))
    for base in _bases(definition):
        found = library.find_definition(full_name(definition.module, base))
        if found is None:
            if not _is_plain(base):
                return Signature(definition.dotted, open=True, known=False)
            continue
        inherited = _of_class(found, library, seen)
        if inherited is not None:
            return replace(inherited, parameters=_documented(inherited.parameters, docs))
    return None


def _of_constructor(
    definition: Definition, function: FunctionNode, library: Library, seen: set[str]
) -> Signature:
    own = _of_function(definition, function, bound=True)
    docs = arguments_of(ast.get_docstring(function) or "")
    docs |= arguments_of(doc_of(definition.module, definition.node))
    parameters = _documented(own.parameters, docs)
    forwarded = _forwarding_call(function) if own.open else None
    if forwarded is None:
        return replace(own, parameters=parameters)
    inherited = _of_bases(definition, library, seen) or Signature(definition.dotted)
    taken = {item.name for item in parameters}
    taken |= {item.name for item in inherited.parameters[: len(forwarded.args)]}
    taken |= {str(word.arg).rstrip("_") for word in forwarded.keywords if word.arg}
    rest = tuple(item for item in inherited.parameters if item.name not in taken)
    return replace(own, parameters=parameters + rest, open=inherited.open, known=inherited.known)


def _forwarding_call(function: FunctionNode) -> ast.Call | None:
    """The call of the base constructor that passes this one's ``**kwargs`` on."""
    rest = function.args.kwarg
    for node in ast.walk(function):
        if (
            rest is not None
            and isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == function.name
            and isinstance(node.func.value, ast.Call)
            and getattr(node.func.value.func, "id", "") == "super"
            and any(
                word.arg is None and getattr(word.value, "id", "") == rest.arg
                for word in node.keywords
            )
        ):
            return node
    return None


def _of_function(definition: Definition, function: FunctionNode, *, bound: bool) -> Signature:
    arguments = function.args
    module = definition.module
    positional = [*arguments.posonlyargs, *arguments.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults = [*missing, *arguments.defaults]
    found = [
        _parameter(arg, default, module, positional_only=index < len(arguments.posonlyargs))
        for index, (arg, default) in enumerate(zip(positional, defaults, strict=True))
    ]
    found = found[1:] if bound else found
    found += [
        _parameter(arg, default, module)
        for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return Signature(definition.dotted, tuple(found), open=arguments.kwarg is not None)


def _parameter(
    arg: ast.arg, default: ast.expr | None, module: Module, *, positional_only: bool = False
) -> Parameter:
    return Parameter(
        _key(arg.arg),
        _annotation(arg.annotation, module),
        MISSING if default is None else read_literal(default, module),
        kind="positional" if positional_only else "keyword",
        argument=arg.arg,
    )


def _key(argument: str) -> str:
    return argument[:-1] if argument.endswith("_") and len(argument) > 1 else argument


def _of_fields(definition: Definition, library: Library, seen: set[str]) -> Signature | None:
    node = definition.node
    assert isinstance(node, ast.ClassDef)
    parameters: dict[str, Parameter] = {}
    for base in reversed(list(_bases(definition))):
        found = library.find_definition(full_name(definition.module, base))
        inherited = None if found is None else _of_class(found, library, seen)
        parameters |= {item.name: item for item in inherited.parameters} if inherited else {}
    own = method_of(node, "__init__")
    if own is not None:
        return _of_function(definition, own, bound=True)
    docs = field_docs(node)
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            item = _field(statement, statement.target.id, definition.module, docs)
            parameters |= {} if item is None else {item.name: item}
    documented = _documented(
        tuple(parameters.values()), arguments_of(ast.get_docstring(node) or "")
    )
    return Signature(definition.dotted, documented)


def _field(
    statement: ast.AnnAssign, name: str, module: Module, docs: Mapping[str, str]
) -> Parameter | None:
    annotation = _annotation(statement.annotation, module)
    if annotation.split("[")[0].rpartition(".")[2] in ("ClassVar", "KW_ONLY"):
        return None
    default: Plain = MISSING
    value = statement.value
    if isinstance(value, ast.Call) and full_name(module, value.func).endswith("field"):
        if any(
            word.arg == "init" and getattr(word.value, "value", True) is False
            for word in value.keywords
        ):
            return None
        default = read_field_default(value, module)
    elif value is not None:
        default = read_literal(value, module)
    return Parameter(_key(name), annotation, default, docs.get(name, ""), argument=name)


def _is_dataclass(definition: Definition) -> bool:
    for decorator in definition.node.decorator_list:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        if full_name(definition.module, call) == "dataclasses.dataclass":
            return True
    return False


def method_of(node: ast.ClassDef, name: str) -> FunctionNode | None:
    """The method that a class body itself defines under ``name``."""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name:
            return statement
    return None


def _annotation(expression: ast.expr | None, module: Module) -> str:
    return "" if expression is None else ast.unparse(_without_aliases(expression, module))


def _without_aliases(expression: ast.expr, module: Module, depth: int = 4) -> ast.expr:
    """The type with what the module's own aliases stand for in place of their names."""
    if isinstance(expression, ast.Name):
        binding = module.bindings.get(expression.id)
        if depth and isinstance(binding, Variable) and isinstance(binding.value, _ALIASED):
            return _without_aliases(binding.value, module, depth - 1)
    elif isinstance(expression, ast.BinOp):
        left = _without_aliases(expression.left, module, depth)
        right = _without_aliases(expression.right, module, depth)
        return ast.BinOp(left, expression.op, right)
    elif isinstance(expression, ast.Subscript):
        inner = _without_aliases(expression.slice, module, depth)
        return ast.Subscript(expression.value, inner, expression.ctx)
    elif isinstance(expression, ast.Tuple):
        parts = [_without_aliases(part, module, depth) for part in expression.elts]
        return ast.Tuple(parts, expression.ctx)
    return expression


def _documented(
    parameters: tuple[Parameter, ...], docs: Mapping[str, str]
) -> tuple[Parameter, ...]:
    return tuple(replace(item, doc=item.doc or docs.get(item.argument, "")) for item in parameters)
