"""A launch form as JSON, for the web page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.check.export.launch_form import FormChoice, LaunchForm
    from epochal.check.sections.form_fields import FormField

_MAX_DOC = 400


def form_to_json(form: LaunchForm) -> list[dict[str, Any]]:
    """The fields of a form, with those of all components that it offers."""
    return [_field(one, form) for one in form.fields]


def _field(one: FormField, form: LaunchForm) -> dict[str, Any]:
    section, _, rest = one.key.partition(".")
    known: dict[str, Any] = {
        "key": one.key,
        "label": rest or section,
        "group": section,
        "doc": _cut(one.doc),
        "type": one.type,
        "default": one.is_default,
        "is_integer": one.is_integer,
        "is_nullable": one.is_nullable,
        "is_required": one.is_required,
        "min": one.find_limit("minimum", "exclusiveMinimum"),
        "max": one.find_limit("maximum", "exclusiveMaximum"),
    }
    if one.type == "list":
        items = [form.show_item(one, node) for node in one.node.elements]
        return known | {"value": items, "choices": _choices(form.choices[one.key], form)}
    if one.type == "component":
        current = form.current(one)
        name = None if current is None else current.name
        return known | {"value": name, "choices": _choices(form.choices[one.key], form)}
    return known | {"value": one.node.value, "choices": list(one.choices)}


def _choices(choices: Sequence[FormChoice], form: LaunchForm) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "doc": _cut(one.doc),
            "fields": [_field(inner, form) for inner in one.fields],
        }
        for one in choices
    ]


def _cut(text: str) -> str:
    plain = text.replace("``", "")
    return plain if len(plain) <= _MAX_DOC else f"{plain[: _MAX_DOC - 3]}..."
