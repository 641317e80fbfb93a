"""Reasons against capturing steps that are known without a trial."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from torch import nn

from epochal.engine.optim.multi_optimizer import list_optimizers
from epochal.engine.step.updater import Updater

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from epochal.engine.run.engine_run import EngineRun

_STEP_METHODS = ("update", "backward", "apply", "finish_gradients", "zero_grad")
_MODULE_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def find_capture_obstacle(run: EngineRun) -> str:
    """Why the steps of this run cannot be captured; empty if no reason is known.

    Asked again after user code ran, since hooks may be added at any time.
    """
    if run.is_shared:
        return "several processes share the step"
    if run.device.type != "cuda":
        return f"graphs need a CUDA device, and this one is {run.device.type}"
    if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") != "0":
        return "CUDA_LAUNCH_BLOCKING is set, as --debug does"
    return (
        _find_batch_listener(run)
        or _find_custom_updater(run)
        or _find_optimizer_obstacle(run.optimizer)
        or _find_guard_sync(run)
        or _find_module_hook(run.model)
        or _find_cudnn_dropout(run.model)
    )


def _find_batch_listener(run: EngineRun) -> str:
    for event in ("batch_start", "batch_end"):
        for listener in run.events.listeners(event, "train"):
            return f"{listener.owner} acts inside the step; step_end would act between steps"
    return ""


def _find_custom_updater(run: EngineRun) -> str:
    kind = type(run.part(Updater))
    if run.part(Updater).is_capturable:
        return ""
    changed = [name for name in _STEP_METHODS if getattr(kind, name) is not getattr(Updater, name)]
    if not changed:
        return ""
    return f"{kind.__name__}.{changed[0]} is overridden without is_capturable = True"


def _find_optimizer_obstacle(optimizer: Optimizer | None) -> str:
    if optimizer is None:
        return "there is no single optimizer"
    for one in list_optimizers(optimizer):
        name = type(one).__name__
        for group in one.param_groups:
            if not group.get("capturable", group.get("fused", False)):
                return f"{name} is not capturable: write it in the config, or give capturable=True"
            if isinstance(group["lr"], float | int):
                return f"the learning rate of {name} is a Python number: give lr as a tensor"
    return ""


def _find_guard_sync(run: EngineRun) -> str:
    guard = run.part(Updater).guard
    if guard is not None and guard.syncs_each_step:
        return "the non-finite guard reads a value from the device in each step; use fused=True"
    return ""


def _find_module_hook(model: nn.Module) -> str:
    for name, module in model.named_modules():
        for kind in _MODULE_HOOKS:
            for hook in getattr(module, kind).values():
                owner = str(getattr(hook, "__module__", type(hook).__module__))
                if owner.split(".")[0] not in ("torch", "epochal"):
                    text = getattr(hook, "__qualname__", type(hook).__qualname__)
                    where = f"model.{name}" if name else "model"
                    return f"{text}, a {kind.strip('_').removesuffix('s')} of {where}, acts in it"
    return ""


def _find_cudnn_dropout(model: nn.Module) -> str:
    """Find dropout whose random state is in cuDNN, where it can be neither seeded nor restored."""
    for name, module in model.named_modules():
        if isinstance(module, nn.RNNBase) and module.dropout > 0 and module.num_layers > 1:
            where = f"model.{name}" if name else "model"
            if torch.backends.cudnn.enabled:
                return f"dropout between the layers of {where} has its own generator in cuDNN"
    return ""
