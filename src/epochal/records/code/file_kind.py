"""Classifies files as code, config or data, and removes secrets from code and configs."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Literal, TypeAlias

from epochal.records.secrets import redact
from epochal.records.secrets.process_secrets import get_secret_values

FileKind: TypeAlias = Literal["code", "script", "config", "data"]
"""In scripts and configs values have no quotes; in code they do."""

_CODE = frozenset((
    "py", "pyi", "pyw", "pyx", "pxd", "ipynb", "js", "cjs", "mjs", "jsx", "ts", "cts", "mts",
    "tsx", "vue", "html", "htm", "ps1", "c", "cc", "cpp", "cxx", "cu", "cuh", "cl", "h", "hh",
    "hpp", "metal", "rs", "go", "java", "rb", "jl", "lua", "r", "scala", "swift", "kt", "m", "mm",
    "cs", "php", "pl", "sql", "hs", "ml", "dart", "zig", "nim", "f90", "proto", "cmake",
))  # fmt: skip
_SCRIPTS = frozenset(("sh", "bash", "zsh", "fish", "bat", "cmd", "mk", "tex"))
_CONFIGS = frozenset(("yaml", "yml", "toml", "ini", "cfg", "conf", "properties"))
_CONFIG_NAMES = re.compile(
    r"\.env\..+|(?:Make|Docker|Just|Proc)file|(?:requirements|constraints)[\w.-]*\.txt",
    re.IGNORECASE,
)
_CODE_LINE = re.compile(rb"#!.*(?:python|perl|ruby|node|julia|Rscript)")


def get_file_kind(path: str) -> FileKind:
    """What a file is, by its name."""
    name = PurePath(path).name
    suffix = PurePath(name).suffix[1:].lower()
    if suffix in _CODE:
        return "code"
    if suffix in _SCRIPTS:
        return "script"
    return "config" if suffix in _CONFIGS or _CONFIG_NAMES.fullmatch(name) else "data"


def remove_secrets(data: bytes, path: str) -> bytes | None:
    """The content of a file without secrets: the same object if it has none.

    Data is never changed. None means that it has a secret and cannot be copied.
    """
    if b"\0" in data:
        known = (value.encode(errors="surrogateescape") for value in get_secret_values())
        return None if any(value in data for value in known) else data
    kind = get_file_kind(path)
    if kind == "data" and data.startswith(b"#!"):
        kind = "code" if _CODE_LINE.match(data) else "script"
    text = data.decode("utf-8", "surrogateescape")
    clean = redact(text, is_code=kind == "code", is_page=kind == "data")
    if clean == text:
        return data
    return None if kind == "data" else clean.encode("utf-8", "surrogateescape")
