"""The state of modules: weights, buffers, modes, and what is frozen."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from epochal.engine.state.optimizer_state import restore_in_place
from epochal.errors import CheckpointError

if TYPE_CHECKING:
    import torch
    from torch import nn

    State = dict[str, Any]  # a tree of plain data and tensors


def collect_module(module: nn.Module) -> State:
    """The whole state of a module."""
    weights = dict(module.state_dict())
    buffers = {name: one for name, one in module.named_buffers() if name not in weights}
    parameters = module.named_parameters()
    return {
        "weights": weights,
        "buffers": buffers,
        "frozen": [name for name, one in parameters if not one.requires_grad],
        "eval": [name for name, one in module.named_modules() if not one.training],
    }


def restore_module(module: nn.Module, state: State, device: torch.device, owner: str) -> None:
    """Restore the state of a module, in its tensors.

    Raises:
        CheckpointError: Names or shapes differ; it says which.
    """
    _restore_weights(module, state["weights"], owner)
    for name, value in state["buffers"].items():
        prefix, _, attribute = name.rpartition(".")
        try:
            holder = module.get_submodule(prefix)
        except AttributeError as error:
            what = f"{owner}: has no buffer {name!r}, and the checkpoint has"
            raise CheckpointError(what) from error
        setattr(
            holder, attribute, restore_in_place(getattr(holder, attribute, None), value, device)
        )
    frozen, evaluating = set(state["frozen"]), set(state["eval"])
    for name, parameter in module.named_parameters():
        if parameter.requires_grad is (name in frozen):
            parameter.requires_grad_(name not in frozen)
    for name, one in module.named_modules():
        one.training = name not in evaluating


def _restore_weights(module: nn.Module, saved: State, owner: str) -> None:
    current = module.state_dict()
    missing = [name for name in current if name not in saved]
    unexpected = [name for name in saved if name not in current]
    if missing or unexpected:
        lines = [("missing in the checkpoint", missing), ("only in the checkpoint", unexpected)]
        listed = (f"\n  {what}: {', '.join(names[:10])}" for what, names in lines if names)
        what = f"{owner}: its weights are not those of the checkpoint"
        raise CheckpointError(what + "".join(listed))
    weights: Any = OrderedDict(saved)
    weights._metadata = getattr(current, "_metadata", None)  # torch's versions of layers
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:  # a shape differs, or a hook of the module raises
        what = str(error).splitlines()[-1].strip()
        raise CheckpointError(f"{owner}: does not take its weights back\n  {what}") from error
