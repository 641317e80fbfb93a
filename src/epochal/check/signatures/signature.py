"""Reads the typed signature of a component from its source: the schema of its spec."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from epochal.check.signatures.classes import (
    binds_name,
    decorators_keep_signature,
    find_method_node,
    find_mro,
    has_plain_construction,
    is_dataclass,
    is_false,
)
from epochal.check.signatures.docstrings import doc_of, field_docs, parse_argument_docs, summary_of
from epochal.check.signatures.parameters import (
    MISSING,
    Opaque,
    Parameter,
    Plain,
    Signature,
    add_docs,
    annotation_of,
    key_of,
    list_of,
    read_field_default,
    read_literal,
    to_plain,
)
from epochal.registry.module_finder import ModuleFinder, cached_by_finder
from epochal.registry.parsed_module import full_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from epochal.registry.component_names import Factory
    from epochal.registry.parsed_module import Definition, FunctionNode, Module

# Passed by the code that builds the component, so a config cannot set them.
_SUPPLIED = {
    "optimizer": ("params",),
    "schedule": ("optimizer",),
    "sampler": ("data_source", "dataset", "generator"),
}


def read_signature(factory: Factory, finder: ModuleFinder | None = None) -> Signature:
    """The signature of ``factory``, read from its object or else from its source."""
    if factory.object is not None:
        signature = live_signature(factory.object, owner=factory.dotted)
    else:
        finder = finder or ModuleFinder()
        definition = finder.find_definition(factory.dotted)
        if definition is None:
            return Signature(factory.dotted, open=True)
        signature = definition_signature(definition, finder)
    supplied = _SUPPLIED.get(factory.kind, ())
    settable = tuple(item for item in signature.parameters if item.name not in supplied)
    if factory.kind in ("loss", "metric", "output", "evaluation") and is_function(
        factory, signature
    ):
        settable = tuple(item for item in settable if not _is_batch_input(item))
    if factory.kind == "hook" and is_middleware(factory, signature):
        settable = settable[1:]
    if factory.kind in ("pipe", "collate") and is_function(factory, signature):
        settable = settable[1:]  # the item, or the samples
    return replace(signature, parameters=settable)


def is_middleware(factory: Factory, signature: Signature) -> bool:
    """Whether a factory of hooks is a function that takes the run itself, as ``run``."""
    first = signature.parameters[0].name if signature.parameters else ""
    return first == "run" and is_function(factory, signature)


def is_function(factory: Factory, signature: Signature) -> bool:
    """Whether a factory is a function, so that it is the component itself."""
    if signature.definition is not None:
        return not isinstance(signature.definition.node, ast.ClassDef)
    return factory.object is not None and not isinstance(factory.object, type)


def _is_batch_input(item: Parameter) -> bool:
    """Whether an argument of a loss or metric comes from output and batch, not the config."""
    return item.is_required and item.kind in ("keyword", "positional")


def called_signature(signature: Signature, finder: ModuleFinder) -> Signature | None:
    """The parameters of a loss when it is called; None if the source does not show them."""
    definition = signature.definition
    if definition is None:
        return None
    if not isinstance(definition.node, ast.ClassDef):
        return definition_signature(definition, finder)
    for item in find_mro(definition, finder):
        if item is None or item.dotted == "torch.nn.modules.module.Module":
            return None
        node = item.node
        method = find_method_node(node, "forward") or find_method_node(node, "__call__")
        if method is not None:
            found = _of_function(item, method, finder, bound=True)
            return replace(found, owner=definition.dotted)
    return None


def method_signature(definition: Definition, name: str, finder: ModuleFinder) -> Signature | None:
    """The parameters of a method without ``self``; None if the source does not show them."""
    for item in find_mro(definition, finder):
        if item is None:
            return None
        method = find_method_node(item.node, name)
        if method is not None:
            found = _of_function(item, method, finder, bound=True)
            return replace(found, owner=f"{item.dotted}.{name}")
        if binds_name(item.node, name):
            return None
    return None


@cached_by_finder
def definition_signature(definition: Definition, finder: ModuleFinder) -> Signature:
    """The signature of a class or function statement."""
    node = definition.node
    doc = doc_of(definition.module, node)
    if isinstance(node, ast.ClassDef):
        found = _of_class(definition, finder)
    else:
        found = _of_function(definition, node, finder, bound=False)
    return replace(
        found,
        owner=definition.dotted,
        parameters=add_docs(found.parameters, parse_argument_docs(doc)),
        summary=summary_of(doc),
        definition=definition,
    )


def _of_class(definition: Definition, finder: ModuleFinder) -> Signature:
    node = definition.node
    init = find_method_node(node, "__init__")
    if init is not None and _forwarding_call(init) is None:
        return _visible(definition, init, finder)  # without looking for the bases
    order = find_mro(definition, finder)
    if binds_name(node, "__init__") or is_dataclass(definition) or has_plain_construction(order):
        return _of_first(order, finder) or Signature(definition.dotted)
    return Signature(definition.dotted, open=True)


def _of_first(order: Sequence[Definition | None], finder: ModuleFinder) -> Signature | None:
    """The first constructor in an MRO; None if there is none."""
    for index, item in enumerate(order):
        if item is None:
            return Signature("", open=True)
        if item.dotted == "torch.nn.modules.module.Module":
            return None  # it declares *args and **kwargs only to reject them
        found = _of_own(item, order[index:], finder)
        if found is not None:
            return found
    return None


def _of_own(
    definition: Definition, order: Sequence[Definition | None], finder: ModuleFinder
) -> Signature | None:
    """The constructor that a class defines; None if it inherits one."""
    node = definition.node
    init = find_method_node(node, "__init__")
    if init is not None:
        return _of_constructor(definition, init, order, finder)
    if binds_name(node, "__init__") or not decorators_keep_signature(definition, node, finder):
        return Signature(definition.dotted, open=True)
    if is_dataclass(definition):
        return fields_signature(order, finder)
    new = find_method_node(node, "__new__")
    return None if new is None else _of_constructor(definition, new, order, finder)


def _visible(definition: Definition, function: FunctionNode, finder: ModuleFinder) -> Signature:
    """The constructor's own parameters, with their documentation."""
    own = _of_function(definition, function, finder, bound=True)
    docs = parse_argument_docs(ast.get_docstring(function) or "")
    docs |= parse_argument_docs(doc_of(definition.module, definition.node))
    return replace(own, parameters=add_docs(own.parameters, docs))


def _of_constructor(
    definition: Definition,
    function: FunctionNode,
    order: Sequence[Definition | None],
    finder: ModuleFinder,
) -> Signature:
    own = _visible(definition, function, finder)
    forwarded = _forwarding_call(function)
    if forwarded is None:
        return own
    inherited = _of_first(order[1:], finder) or Signature(definition.dotted)
    given = [argument for argument in forwarded.args if not isinstance(argument, ast.Starred)]
    taken = {item.name for item in (*own.parameters, *inherited.parameters[: len(given)])}
    taken |= {key_of(str(word.arg)) for word in forwarded.keywords if word.arg}
    rest = tuple(item for item in inherited.parameters if item.name not in taken)
    is_open = inherited.open or not decorators_keep_signature(definition, function, finder)
    parameters = _joined(own.parameters, rest, forwarded, function)
    return replace(own, parameters=parameters, open=is_open)


def _joined(
    own: tuple[Parameter, ...],
    rest: tuple[Parameter, ...],
    forwarded: ast.Call,
    function: FunctionNode,
) -> tuple[Parameter, ...]:
    """A constructor's own parameters, and those that it forwards to its base."""
    name = function.args.vararg.arg if function.args.vararg is not None else ""
    starred = [item.value for item in forwarded.args if isinstance(item, ast.Starred)]
    if name and any(getattr(value, "id", "") == name for value in starred):
        return tuple(item for item in own if item.kind != "variadic") + rest
    return own + tuple(replace(item, kind="named") for item in rest if item.kind != "variadic")


def _forwarding_call(function: FunctionNode) -> ast.Call | None:
    """The call of the base constructor that forwards ``**kwargs``, if it is their only use."""
    if function.args.kwarg is None:
        return None
    rest = function.args.kwarg.arg
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == rest]
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    found = [call for call in calls if _is_super_call(call, function.name)]
    if len(uses) != 1 or len(found) != 1:
        return None
    passed = any(word.arg is None and word.value is uses[0] for word in found[0].keywords)
    return found[0] if passed else None


def _is_super_call(call: ast.Call, method: str) -> bool:
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == method
        and isinstance(call.func.value, ast.Call)
        and getattr(call.func.value.func, "id", "") == "super"
    )


def _of_function(
    definition: Definition, function: FunctionNode, finder: ModuleFinder, *, bound: bool
) -> Signature:
    arguments = function.args
    module = definition.module
    positional = [*arguments.posonlyargs, *arguments.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults = [*missing, *arguments.defaults]
    found = [
        _live_parameter(arg, default, module, positional_only=index < len(arguments.posonlyargs))
        for index, (arg, default) in enumerate(zip(positional, defaults, strict=True))
    ]
    found = found[1:] if bound else found
    if arguments.vararg is not None:
        found.append(_variadic(arguments.vararg, module))
    found += [
        replace(_live_parameter(arg, default, module), kind="named")
        for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if decorators_keep_signature(definition, function, finder):
        return Signature(definition.dotted, tuple(found), open=arguments.kwarg is not None)
    return Signature(definition.dotted, tuple(_not_binding(item) for item in found), open=True)


def _not_binding(item: Parameter) -> Parameter:
    """A parameter that a decorator may supply, remove or give another default."""
    default = item.default
    if not isinstance(default, Opaque):
        default = Opaque("..." if default is MISSING else repr(default))
    return replace(item, default=default)


def _variadic(arg: ast.arg, module: Module) -> Parameter:
    annotation = list_of(annotation_of(arg.annotation, module))
    key = key_of(arg.arg)
    return Parameter(key, annotation, [], "", "variadic", argument=arg.arg, home=module.name)


def _live_parameter(
    arg: ast.arg, default: ast.expr | None, module: Module, *, positional_only: bool = False
) -> Parameter:
    return Parameter(
        key_of(arg.arg),
        annotation_of(arg.annotation, module),
        MISSING if default is None else read_literal(default, module),
        kind="positional" if positional_only else "keyword",
        argument=arg.arg,
        home=module.name,
    )


def live_signature(component: Callable[..., Any], *, owner: str) -> Signature:
    """The signature of a live object; unknown if ``inspect`` cannot read it."""
    doc = inspect.getdoc(component) or ""
    try:
        found = inspect.signature(component)
    except (TypeError, ValueError):
        return Signature(owner, open=True, summary=summary_of(doc))
    docs = parse_argument_docs(doc)
    parameters = tuple(
        _parameter_from_object(item, docs.get(item.name, ""))
        for item in found.parameters.values()
        if item.kind is not item.VAR_KEYWORD
    )
    is_open = any(item.kind is item.VAR_KEYWORD for item in found.parameters.values())
    return Signature(owner, parameters, open=is_open, summary=summary_of(doc))


def _parameter_from_object(item: inspect.Parameter, doc: str) -> Parameter:
    key, annotation = key_of(item.name), _annotation(item.annotation)
    if item.kind is item.VAR_POSITIONAL:
        return Parameter(key, list_of(annotation), [], doc, "variadic", item.name)
    default = MISSING if item.default is item.empty else to_plain(item.default)
    kind = "named" if item.kind is item.KEYWORD_ONLY else "keyword"
    kind = "positional" if item.kind is item.POSITIONAL_ONLY else kind
    return Parameter(key, annotation, default, doc, kind, item.name)


def _annotation(annotation: object) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, type) and not hasattr(annotation, "__origin__"):
        return annotation.__name__
    return str(annotation)


def fields_signature(order: Sequence[Definition | None], finder: ModuleFinder) -> Signature:
    """The constructor of a dataclass, given its MRO."""
    parameters: dict[str, Parameter] = {}
    is_open = False
    for item in reversed(order):
        if item is None or not decorators_keep_signature(item, item.node, finder):
            is_open = True  # an unknown base may add fields
        elif is_dataclass(item):
            for name, parameter in _fields(item):
                parameters.pop(name, None)
                if parameter is not None:
                    parameters[name] = parameter
    owner = order[0].dotted if order[0] is not None else ""
    return Signature(owner, tuple(parameters.values()), open=is_open)


def _fields(definition: Definition) -> Iterator[tuple[str, Parameter | None]]:
    node = definition.node
    assert isinstance(node, ast.ClassDef)
    docs = field_docs(node)
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
            yield name, _field(statement, name, definition.module, docs.get(name, ""))


def _field(statement: ast.AnnAssign, name: str, module: Module, doc: str) -> Parameter | None:
    annotation = annotation_of(statement.annotation, module)
    kind = annotation.strip("'\"").split("[")[0].rpartition(".")[2]
    if kind in ("ClassVar", "KW_ONLY"):
        return None
    default: Plain = MISSING
    value = statement.value
    if isinstance(value, ast.Call) and full_name(module, value.func).endswith("field"):
        if any(word.arg == "init" and is_false(word.value) for word in value.keywords):
            return None
        default = read_field_default(value, module)
    elif value is not None:
        default = read_literal(value, module)
    return Parameter(key_of(name), annotation, default, doc, argument=name, home=module.name)
