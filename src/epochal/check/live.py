"""The signature of a component that Python code handed over, read from the object itself."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from epochal.check.docs import arguments_of, summary_of
from epochal.check.literals import MISSING, to_plain
from epochal.check.parameters import Parameter, Signature, key_of, list_of

if TYPE_CHECKING:
    from collections.abc import Callable


def live_signature(component: Callable[..., Any], *, owner: str) -> Signature:
    """What ``component`` can be given; unknown when Python itself cannot tell."""
    doc = inspect.getdoc(component) or ""
    try:
        found = inspect.signature(component)
    except (TypeError, ValueError):
        return Signature(owner, open=True, known=False, summary=summary_of(doc))
    docs = arguments_of(doc)
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
