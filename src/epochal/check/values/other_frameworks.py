"""Translates config names of other frameworks into ours, for hints."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from epochal.config.node import Node

BASE = "$BASE"
_SECTIONS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("$base", "$bases", "base", "bases", "_base_", "defaults"), BASE),
        **dict.fromkeys(("optimizer", "optimizers", "optim_wrapper"), "optim"),
        **dict.fromkeys(("scheduler", "lr_scheduler", "param_scheduler"), "schedule"),
        **dict.fromkeys(("trainer", "training", "train_cfg"), "train"),
        **dict.fromkeys(("dataset", "datasets", "dataloader", "dataloaders", "datamodule"), "data"),
        **dict.fromkeys(("callbacks", "callback", "plugins", "custom_hooks"), "hooks"),
        **dict.fromkeys(("logger", "loggers", "logging"), "log"),
        **dict.fromkeys(("load_from", "pretrained"), "init_from"),
        **dict.fromkeys(("net", "network"), "model"),
    }
)
_EPOCHS = ("epochs", "max_epochs", "num_epochs", "n_epochs", "num_train_epochs")
_STEPS = ("steps", "max_steps", "num_steps", "iterations", "max_iters", "num_iters", "total_steps")
_FOLDERS = ("work_dir", "log_dir", "output_dir", "save_dir", "default_root_dir")


def meant_section(name: str) -> str:
    """The section that other frameworks call ``name``; empty if there is none."""
    return _SECTIONS.get(name.lower(), "")


def section_hint(name: str, node: Node) -> str:
    """What to write for a top-level key that belongs into a section; else empty."""
    length = length_hint(name, node)
    if length:
        return length.replace("write for: ", "write train.for: ")
    if name.lower() in _FOLDERS:
        return f"write record: {{log_dir: {node.value}}}"
    return "write optim: {lr: ...}" if name in ("lr", "learning_rate") else ""


def length_hint(key: str, node: Node) -> str:
    """How to write the length of a training, for keys such as ``epochs``; else empty."""
    unit = "ep" if key.lower() in _EPOCHS else "st" if key.lower() in _STEPS else ""
    amount = node.value if isinstance(node.value, int | float) else 10
    return f"write for: {amount}{unit}" if unit else ""
