"""Checkpoint names from a template such as ``{tag}-{step}-{val/acc:.3f}``."""

from __future__ import annotations

import re
import sys
from string import Formatter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

NUMBERS = ("step", "epoch", "samples")
"""The position of a run; a template needs one of them to give unique names."""

TEXTS = ("tag",)
LONGEST = 120
"""In bytes, the unit of file systems."""

_ODD = re.compile(r"[^\w.,+=@~-]+")


def check_template(text: str) -> None:
    """Refuse a template that gives no valid checkpoint names.

    The ValueError says what is wrong and, after a line break, what to write.
    """
    fields = _parse(text)
    names = [name for name, _ in fields]
    for name, spec in fields:
        if name not in (*NUMBERS, *TEXTS) and "/" not in name:
            known = ", ".join((*TEXTS, *NUMBERS))
            raise ValueError(
                f"has an unknown name {{{name}}}\nwrite one of {known}, or a metric: {{val/loss}}"
            )
        example: float | str = "a" if name in TEXTS else 1 if name in NUMBERS else 0.5
        try:
            format(example, spec)
        except ValueError as error:
            what = f"{{{name}:{spec}}}: {error}\nwrite for example {{val/acc:.3f}}"
            raise ValueError(what) from error
    if not set(names) & set(NUMBERS):
        raise ValueError("gives every checkpoint the same name\nadd {step}")
    literal = "".join(part for part, *_ in Formatter().parse(text))
    if "/" in literal or "\\" in literal:
        raise ValueError("names a folder\nset checkpoint.dir to choose the folder")


def fill_template(text: str, values: Mapping[str, object]) -> str:
    """The name for some values; a missing value is written as ``none``.

    Characters that a file name cannot have, or that cannot be encoded, become dashes.
    """
    parts = []
    for literal, name, spec, _ in Formatter().parse(text):
        parts.append(literal)
        if name is not None:
            value = values.get(name)
            parts.append("none" if value is None else format(value, spec or ""))
    encoding = sys.getfilesystemencoding()
    coded = "".join(parts).encode(encoding, "replace").decode(encoding)
    name = _ODD.sub("-", coded).lstrip(".-")
    return name.encode(encoding)[:LONGEST].decode(encoding, "ignore") or "checkpoint"


def _parse(text: str) -> list[tuple[str, str]]:
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"{error}\nwrite for example {{tag}}-{{step}}") from error
    found = []
    for _, name, spec, conversion in parsed:
        if conversion:
            raise ValueError(f"{{{name}!{conversion}}}: names take no conversion\nremove it")
        if name is not None:
            found.append((name, spec or ""))
    return found
