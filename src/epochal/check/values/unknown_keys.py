"""Texts and hints for keys that a config may not have, also those of other frameworks."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from epochal.config.inherit import BASE
from epochal.errors import nearest, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from epochal.config.node import Node

# What other frameworks call our sections, and the length and the folder of a run.
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
        **dict.fromkeys(("ema", "swa", "ema_decay"), "average"),
        **dict.fromkeys(("seed_everything", "random_seed", "manual_seed"), "seed"),
        **dict.fromkeys(("distributed", "ddp", "fsdp", "accelerate"), "engine.strategy"),
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
        "warmup_ratio": "warmup",
    }
)
_DEVICES = ("device", "devices", "gpu", "gpus", "gpu_ids", "cuda", "accelerator")
_EPOCHS = ("epochs", "max_epochs", "num_epochs", "n_epochs", "num_train_epochs")
_STEPS = ("steps", "max_steps", "num_steps", "iterations", "max_iters", "num_iters", "total_steps")
_WANDB_KEYS = ("parameters", "method", "early_terminate", "run_cap")
_OPTIM_ARGUMENTS = ("lr", "weight_decay", "clip", "accumulate")
_TRACKERS = {"wandb": "WandB", "mlflow": "MLflow", "tensorboard": "TensorBoard"}
_FOLDERS = ("work_dir", "log_dir", "output_dir", "save_dir", "default_root_dir")


def describe_unknown(key: str, owner: str = "", word: str = "key") -> str:
    """What is wrong with a key that does not exist."""
    return f"unknown {word} {key!r}" + f" of {owner}" * bool(owner)


def suggest_key(path: str, key: str, node: Node, known: Sequence[str]) -> tuple[str, str]:
    """The known key that was probably meant, or an empty text, and a hint for the user."""
    meant = meant_argument(key)
    close = meant if meant in known else nearest(key, known)
    hint = f"did you mean {meant!r}?" if close == meant else suggest_known(key, known)
    if path == f"train.{key}":
        hint = length_hint(key, node) or hint
    if "warmup" in known:
        hint = _warmup_hint(key, node) or hint
    if path.startswith("hooks.") and key in ("monitor", "mode"):
        hint = "the whole run has one monitor: write monitor: -val/loss outside of hooks"
    return close or "", hint


def suggest_known(name: str, known: Iterable[str]) -> str:
    """A hint with the nearest known name, or else some of them."""
    names = sorted(set(known))
    if not names:
        return "it takes none"
    return suggest(name, names) or f"known: {', '.join(names[:12])}, ..."


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
        return f"write train: {{{length.removeprefix('write ')}}}"
    if name in _WANDB_KEYS:
        return "a key of a W&B sweep file: write it under 'sweep' of an experiment's config"
    if name.lower() in _FOLDERS:
        return f"write record: {{log_dir: {node.value}}}"
    if name.lower() in _DEVICES:
        return "choose it for each run: --device cuda:0, or device='cuda:0' in Python"
    if name.lower() in _TRACKERS:
        return f"a hook: add {{type: {_TRACKERS[name.lower()]}}} to hooks"
    argument = "lr" if name == "lr" else meant_argument(name)
    return f"write optim: {{{argument}: ...}}" if argument in _OPTIM_ARGUMENTS else ""


def length_hint(key: str, node: Node) -> str:
    """How to write the length of a training, for keys such as ``epochs``; else empty."""
    unit = "ep" if key.lower() in _EPOCHS else "st" if key.lower() in _STEPS else ""
    return f"write for: {_amount(node)}{unit}" if unit else ""


def _warmup_hint(key: str, node: Node) -> str:
    """How to write the length of a warm-up, for keys such as ``warmup_steps``; else empty."""
    unit = {"warmup_steps": "st", "warmup_iters": "st", "warmup_epochs": "ep"}.get(
        key.lower().removeprefix("num_").removeprefix("lr_")
    )
    return f"write warmup: {_amount(node)}{unit}" if unit else ""


def _amount(node: Node) -> object:
    """The number of a key such as ``epochs``, or an example if it has none."""
    return node.value if isinstance(node.value, int | float) else 10
