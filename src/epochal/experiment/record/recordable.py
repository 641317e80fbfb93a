"""Python values as JSON can keep them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from epochal.config import Duration
from epochal.engine.interfaces.every import Every

_MAX_SHOWN = 200


def to_recordable(value: object) -> object:
    """A value as the record can keep it: plain data as it is, other objects by their type."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_recordable(child) for key, child in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_recordable(child) for child in value]
    if isinstance(value, Path | Every | Duration):
        return str(value)
    text = f"<{type(value).__module__}.{type(value).__qualname__}>"
    return text[:_MAX_SHOWN]
