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
_ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("learning_rate", "base_lr", "max_lr"), "lr"),
        **dict.fromkeys(("wd", "l2", "l2_reg"), "weight_decay"),
        **dict.fromkeys(("max_grad_norm", "grad_clip", "gradient_clip_val", "clip_grad"), "clip"),
        **dict.fromkeys(
            ("accumulate_grad_batches", "gradient_accumulation_steps", "grad_accum"), "accumulate"
        ),
        **dict.fromkeys(("bs", "batchsize", "train_batch_size"), "batch_size"),
        "num_workers": "workers",
    }
)
_DEVICES = ("device", "devices", "gpu", "gpus", "gpu_ids", "cuda", "accelerator")
_EPOCHS = ("epochs", "max_epochs", "num_epochs", "n_epochs", "num_train_epochs")
_STEPS = ("steps", "max_steps", "num_steps", "iterations", "max_iters", "num_iters", "total_steps")
_FOLDERS = ("work_dir", "log_dir", "output_dir", "save_dir", "default_root_dir")


def meant_section(name: str) -> str:
    """The section that other frameworks call ``name``; empty if there is none."""
    return _SECTIONS.get(name.lower(), "")


def meant_argument(name: str) -> str:
    """The argument or key that other frameworks call ``name``; empty if there is none."""
    return _ARGUMENTS.get(name.lower(), "")


def section_hint(name: str, node: Node) -> str:
    """What to write for a top-level key that belongs into a section; else empty."""
    length = length_hint(name, node)
    if length:
        return length.replace("write for: ", "write train.for: ")
    if name.lower() in _FOLDERS:
        return f"write record: {{log_dir: {node.value}}}"
    if name.lower() in _DEVICES:
        return "choose it for each run: --device cuda:0, or device='cuda:0' in Python"
    return "write optim: {lr: ...}" if name in ("lr", "learning_rate") else ""


def length_hint(key: str, node: Node) -> str:
    """How to write the length of a training, for keys such as ``epochs``; else empty."""
    unit = "ep" if key.lower() in _EPOCHS else "st" if key.lower() in _STEPS else ""
    amount = node.value if isinstance(node.value, int | float) else 10
    return f"write for: {amount}{unit}" if unit else ""
