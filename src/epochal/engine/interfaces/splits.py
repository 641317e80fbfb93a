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


def split_name(name: str) -> str:
    """The canonical name of a split, such as ``val`` for ``dev``."""
    split = SPLIT_ALIASES.get(name, name)
    if split not in SPLITS:
        hint = suggest(name, (*SPLITS, *SPLIT_ALIASES))
        raise ConfigError(Problem(name, f"unknown split {name!r}", hint=hint))
    return split
