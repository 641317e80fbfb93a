"""Checks config values against type annotations, and explains values that do not fit."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, final

from epochal.config.bounds import broken_bound, explain, read_bound
from epochal.config.condition import parse_condition
from epochal.config.duration import parse_duration
from epochal.config.scalar import show
from epochal.errors import nearest
from epochal.registry.component_names import ANY_KIND

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.config.bounds import Bound
    from epochal.config.node import Node, Scalar
    from epochal.errors import Place

LISTS = ("list", "List", "Sequence", "MutableSequence", "Iterable", "Collection")
_SETS = ("set", "frozenset", "Set", "FrozenSet", "AbstractSet")
_DICTS = ("dict", "Dict", "Mapping", "MutableMapping", "OrderedDict")
_SCALARS = {
    **{name: name for name in ("int", "float", "bool", "str")},
    **{name: name.lower() for name in ("Duration", "Every", "Condition")},
    **dict.fromkeys(("None", "NoneType"), "none"),
    **dict.fromkeys(("Path", "PurePath", "PathLike"), "path"),
    **dict.fromkeys(("Callable", "type", "Type"), "callable"),
}
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "none": "null",
    "path": "a path",
    "duration": "a duration",
    "every": "a period",
    "condition": "a condition such as 'val/acc >= 0.95'",
    "callable": "the dotted path of a class or function",
    "dict": "a mapping",
}


_PARSERS: dict[str, Callable[[str], object]] = {
    "duration": parse_duration,
    "every": parse_duration,
    "condition": parse_condition,
}


@final
@dataclass(frozen=True, slots=True)
class Type:
    """A type annotation, reduced to what a config can express."""

    name: str
    """A scalar, ``list``, ``set``, ``tuple``, ``dict``, ``union``, ``choice`` or ``any``."""

    args: tuple[Type, ...] = ()
    choices: tuple[Scalar, ...] = ()
    bounds: tuple[Bound, ...] = ()
    """Bounds that numbers of this type must keep."""


ANY = Type("any")


def find_type_problem(node: Node, annotation: str) -> str | None:
    """What is wrong with a value where ``annotation`` is expected; None if it fits."""
    wanted = parse_type(annotation)
    if fits(node, wanted):
        return None
    for part in wanted.args if wanted.name == "union" else (wanted,):
        if part.name in _PARSERS and isinstance(node.value, str):
            never = ", or 0 for never" if part.name == "every" else ""
            return f"{_text_error(node.value, part.name)}{never}"
    broken = _broken_bound(node, wanted)
    if broken is not None:
        return explain(node.value, broken)[0]
    return f"expected {describe_type(wanted)}, got {_shown(node)}"


def find_problem_place(node: Node, annotation: str) -> Place:
    """The place of a value that does not fit; in a list, of its first wrong element."""
    lists = [part for part in _flat(parse_type(annotation)) if part.name in ("list", "tuples")]
    if len(lists) == 1 and node.is_list:
        wrong = (child for child in node.elements if not fits(child, lists[0].args[0]))
        return next(wrong, node).place
    return node.place


def hint_for(node: Node, annotation: str, default: object = None) -> str:
    """What to type instead of a value that does not fit; often empty.

    The ``default`` of the parameter is an example of a list with a fixed length.
    """
    wanted = parse_type(annotation)
    parts = _flat(wanted)
    value = node.value
    broken = _broken_bound(node, wanted)
    if broken is not None:
        return explain(value, broken)[1] + ", or null" * (Type("none") in parts)
    if any(part.name == "tuple" for part in parts) and isinstance(default, list):
        return f"write for example {show(default)}"
    choices = [str(choice) for part in parts for choice in part.choices]
    if choices and isinstance(value, str):
        close = nearest(value, choices)
        is_typo = close is not None and _digits(close) == _digits(value)
        return f"did you mean {close!r}?" if is_typo else "known: " + ", ".join(choices)
    return _respelled(value, {part.name for part in parts})


def _digits(text: str) -> str:
    """The digits of a name, which are not typos: float16 is not meant to be float64."""
    return "".join(char for char in text if char.isdigit())


def _respelled(value: object, names: set[str]) -> str:
    """How to write the same value as one of the wanted types."""
    if isinstance(value, str):
        wants_number = bool(names & {"int", "float"})
        if wants_number and "," in value and all(map(_is_number, value.split(","))):
            return "for several values: epochal sweep, with them in sweep.space"
        return _unquoted(value) if wants_number and _is_number(value) else _in_list(value, names)
    if isinstance(value, bool):
        return f"quote it: '{show(value)}'" if "str" in names else _in_list(show(value), names)
    if isinstance(value, int | float):
        return _respelled_number(value, names)
    return ""


def _unquoted(text: str) -> str:
    # YAML 1.2 has no underscores in numbers, so a number with them is text.
    return f"write {text.replace('_', '')}" if "_" in text else f"write {text} without quotes"


def _respelled_number(value: float, names: set[str]) -> str:
    if "int" in names and float(value).is_integer():
        return f"write {int(value)}"
    if names & {"duration", "every"} and value < 0:
        return "write 0 for never" if "every" in names else "write for example 10ep"
    if names & {"duration", "every"}:
        return f"write {value}ep for epochs or {value}st for steps"
    return f"quote it: '{value}'" if names & {"str", "path"} else _in_list(value, names)


def _in_list(value: object, names: set[str]) -> str:
    return f"write [{value}]" if names & {"list", "tuple", "tuples"} else ""


def is_callable_path(node: Node, annotation: str) -> bool:
    """Whether a text names a class or function that is passed as it is, without a call."""
    parts = _flat(parse_type(annotation))
    names = {part.name for part in parts if fits(node, part)}
    return isinstance(node.value, str) and "callable" in names and not names & {"str", "choice"}


def nested_kind(path: str) -> str:
    """The kind of a spec inside another one: any, but sampler, collate and pipes are known."""
    parts = path.split(".")
    if parts[-3:-2] == ["chains"] and "pipes" in parts:  # of mix
        return "pipe" if int(parts[-1]) else "source"
    is_sampler = parts[-1] == "sampler" and len(parts) in (3, 4)
    is_known = parts[0] == "data" and (is_sampler or parts[-1] == "collate")
    return parts[-1] if is_known else ANY_KIND


def is_spec(node: Node) -> bool:
    """Whether a value describes a component: a mapping with a ``type``."""
    return "type" in node.mapping


@lru_cache(maxsize=4096)
def parse_type(annotation: str) -> Type:
    """The type of an annotation; ``any`` if it cannot be checked."""
    try:
        if annotation == "None":
            return Type("none")
        return _parse(ast.parse(annotation.strip(), mode="eval").body) if annotation else ANY
    except (SyntaxError, ValueError):
        return ANY


def describe_type(wanted: Type) -> str:
    """The type in words."""
    if wanted.name == "union":
        known = [part for part in wanted.args if part != ANY]
        return " or ".join(dict.fromkeys(describe_type(part) for part in known)) or "a value"
    if wanted.name == "choice":
        return " or ".join(show(choice) for choice in wanted.choices)
    if wanted.name == "tuple":
        return f"a list of {len(wanted.args)} values" if wanted.args else "an empty list"
    if wanted.name in ("list", "set", "tuples"):
        inner = wanted.args[0] if wanted.args else ANY
        return "a list" if inner == ANY else f"a list (each {describe_type(inner)})"
    if wanted.name == "dict" and wanted.args and wanted.args[0] != ANY:
        return f"a mapping (each {describe_type(wanted.args[0])})"
    bounds = ", ".join(f"{bound.words} {bound.limit}" for bound in wanted.bounds)
    words = _WORDS.get(wanted.name, "a value")
    return f"{words} ({bounds})" if bounds else words


def _parse(expression: ast.expr) -> Type:
    if isinstance(expression, ast.Constant):
        written = "None" if expression.value is None else expression.value
        return parse_type(written) if isinstance(written, str) else ANY
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.BitOr):
        return _union(_parse(expression.left), _parse(expression.right))
    if isinstance(expression, ast.Subscript):
        return _parse_subscript(last_name(expression.value), expression.slice)
    name = last_name(expression)
    return Type(_SCALARS[name]) if name in _SCALARS else _parse_bare(name)


def _parse_bare(name: str) -> Type:
    if name in (*LISTS, "tuple", "Tuple"):
        return Type("list" if name in LISTS else "tuples", (ANY,))
    if name in _SETS:
        return Type("set", (ANY,))
    return Type("dict", (ANY,)) if name in _DICTS else ANY


def _parse_subscript(name: str, inner: ast.expr) -> Type:
    parts = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
    if name == "Literal":
        return Type("choice", (), tuple(ast.literal_eval(part) for part in parts))
    if name in ("Annotated", "Final", "InitVar", "Required", "NotRequired"):
        bounds = tuple(bound for bound in map(read_bound, parts[1:]) if bound is not None)
        return _bounded(_parse(parts[0]), bounds)
    if name == "Optional":
        return _union(_parse(parts[0]), Type("none"))
    if name == "Union":
        return _union(*(_parse(part) for part in parts))
    return (
        Type("callable") if name in ("Callable", "type", "Type") else _parse_collection(name, parts)
    )


def _bounded(wanted: Type, bounds: tuple[Bound, ...]) -> Type:
    if wanted.name == "union":
        return _union(*(_bounded(part, bounds) for part in wanted.args))
    is_number = wanted.name in ("int", "float")
    return replace(wanted, bounds=wanted.bounds + bounds) if is_number else wanted


def _broken_bound(node: Node, wanted: Type) -> Bound | None:
    """The bound that is the only reason why a number does not fit."""
    for part in _flat(wanted):
        if part.bounds and fits(node, replace(part, bounds=())):
            return broken_bound(node.value, part.bounds)
    return None


def _parse_collection(name: str, parts: list[ast.expr]) -> Type:
    if name in (*LISTS, *_SETS):
        return Type("list" if name in LISTS else "set", (_parse(parts[0]),))
    if name in _DICTS:
        return Type("dict", (_parse(parts[-1]),))
    if name in ("tuple", "Tuple"):
        if len(parts) == 2 and getattr(parts[1], "value", None) is Ellipsis:
            return Type("tuples", (_parse(parts[0]),))
        return Type("tuple", tuple(_parse(part) for part in parts))
    return ANY


def last_name(expression: ast.expr) -> str:
    """The last part of a dotted name, ``Tensor`` of ``torch.Tensor``; empty if it is no name."""
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""


def _union(*parts: Type) -> Type:
    flat = [inner for part in parts for inner in _flat(part)]
    return Type("union", tuple(dict.fromkeys(flat)))


def _flat(wanted: Type) -> tuple[Type, ...]:
    return wanted.args if wanted.name == "union" else (wanted,)


def fits(node: Node, wanted: Type) -> bool:
    """Whether a value can be given where ``wanted`` is expected; a spec or ``${task:...}`` can."""
    if wanted.name == "any" or is_spec(node) or node.is_deferred:
        return True
    if wanted.name == "union":
        # A member that a config cannot express, such as a tensor, does not admit other values.
        known = [part for part in wanted.args if part != ANY]
        only_null = all(part.name == "none" for part in known)
        return only_null or any(fits(node, part) for part in known)
    if wanted.name == "choice":
        return any(type(c) is type(node.value) and c == node.value for c in wanted.choices)
    if wanted.name in ("list", "set", "tuple", "tuples", "dict"):
        return _fits_collection(node, wanted)
    return _fits_scalar(node.value, wanted.name) and not broken_bound(node.value, wanted.bounds)


def _fits_collection(node: Node, wanted: Type) -> bool:
    if wanted.name == "dict":
        return node.is_mapping and all(fits(c, wanted.args[0]) for c in node.mapping.values())
    if not node.is_list:
        return False
    if wanted.name == "tuple":
        pairs = zip(node.elements, wanted.args, strict=False)
        return len(node.elements) == len(wanted.args) and all(fits(c, t) for c, t in pairs)
    return all(fits(child, wanted.args[0]) for child in node.elements)


def _fits_scalar(value: object, name: str) -> bool:
    if isinstance(value, bool) or value is None:
        return name == ("none" if value is None else "bool")
    if name == "every" and value in (0, "0"):
        return True
    if isinstance(value, str):
        is_text = name in ("str", "path", "callable")
        return is_text or (name in _PARSERS and _text_error(value, name) is None)
    return name == "float" or (name == "int" and isinstance(value, int))


def _text_error(text: str, name: str) -> ValueError | None:
    try:
        _PARSERS[name](text)
    except ValueError as error:
        return error
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _shown(node: Node) -> str:
    text = show(node.to_plain())
    return text if len(text) <= 60 else f"{text[:57]}..."
