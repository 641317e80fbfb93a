"""The four splits of the data and their aliases."""

from __future__ import annotations

from epochal.errors import ConfigError, Problem, suggest

SPLITS = ("train", "val", "test", "predict")

SPLIT_ALIASES = {
    "training": "train",
    "dev": "val",
    "valid": "val",
    "validation": "val",
    "eval": "val",
    "inference": "predict",
    "infer": "predict",
}


def split_name(name: str, *, key: str | None = None) -> str:
    """The canonical name of a split, such as ``val`` for ``dev``; ``key`` is where it is set."""
    split = SPLIT_ALIASES.get(name, name)
    if split not in SPLITS:
        hint = suggest(name, (*SPLITS, *SPLIT_ALIASES))
        raise ConfigError(Problem(key or name, f"unknown split {name!r}", hint=hint))
    return split
