"""Activation checkpointing: recomputes activations of modules in the backward pass."""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from epochal.engine.optim.select_parameters import matches_pattern
from epochal.errors import ConfigError, Problem, nearest_few

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from epochal.engine.run.engine_run import EngineRun

logger = logging.getLogger(__name__)

_KEY = "engine.recompute"


def enable_recompute(run: EngineRun) -> None:
    """Recompute the modules of ``engine.recompute`` until the run is torn down."""
    modules = find_modules(run.model, run.options.engine.recompute, _KEY)
    if not modules:
        return
    wrapped = [_RecomputedForward(module, run.device) for module in modules.values()]
    run.on("teardown", partial(_unwrap, wrapped))
    names = [*modules][:3] + ["..."] * (len(modules) > 3)
    logger.info("recompute: activations of %s are computed twice, not kept", ", ".join(names))


def find_modules(model: nn.Module, patterns: Iterable[str], key: str) -> dict[str, nn.Module]:
    """The outermost modules whose names match the patterns, by name; each pattern must match.

    ``key`` is that of the patterns in the config.
    """
    known = {name: module for name, module in model.named_modules() if name and _computes(module)}
    found: dict[str, nn.Module] = {}
    for pattern in patterns:
        matching = [name for name in known if matches_pattern(name, pattern)]
        if not matching:
            close = nearest_few(pattern.removesuffix(".*"), known, 3, cutoff=0.5)
            hint = f"did you mean {' or '.join(map(repr, close))}?" if close else ""
            hint = hint or f"modules are, for example, {', '.join([*known][:5]) or 'none'}"
            raise ConfigError(Problem(key, f"no module is named {pattern!r}", hint=hint))
        found |= {name: known[name] for name in matching}
    return {
        name: module
        for name, module in found.items()
        if not any(name.startswith(f"{outer}.") for outer in found)
    }


def _computes(module: nn.Module) -> bool:
    """Whether a module can be called; lists and dicts of modules cannot."""
    return not isinstance(module, nn.ModuleList | nn.ModuleDict)


@final
class _RecomputedForward:
    """Replaces the ``forward`` of a module by one that is recomputed in the backward pass."""

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self._module = module
        self._forward: Any = module.forward
        self._own = module.__dict__.get("forward")
        self._is_on_cuda = device.type == "cuda"
        self._norms = [
            one for one in module.modules() if getattr(one, "track_running_stats", False)
        ]
        module.forward = self

    def __call__(self, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - any arguments of a module
        if not torch.is_grad_enabled():
            return self._forward(*args, **named)
        options: dict[str, Any] = {"use_reentrant": False}
        if self._norms and not torch.compiler.is_compiling():  # compiled code updates them once
            options["context_fn"] = self._contexts
        if self._is_on_cuda and torch.cuda.is_current_stream_capturing():
            # A graph cannot read the state of a generator. If the random numbers then differ,
            # the comparison with eager steps finds it.
            options["preserve_rng_state"] = False
        return checkpoint(partial(self._forward, **named), *args, **options)

    def _contexts(self) -> tuple[Any, Any]:
        return nullcontext(), _with_copied_buffers(self._norms)

    def undo(self) -> None:
        """Restore the ``forward`` of the module."""
        if self._own is not None:
            self._module.forward = self._own
        else:
            self._module.__dict__.pop("forward", None)


@contextmanager
def _with_copied_buffers(norms: list[nn.Module]) -> Iterator[None]:
    """Let the recomputation update copies of the running statistics, not the statistics."""
    originals = [dict(norm._buffers) for norm in norms]
    for norm, buffers in zip(norms, originals, strict=True):
        norm._buffers.update(
            {name: None if one is None else one.clone() for name, one in buffers.items()}
        )
    try:
        yield
    finally:
        for norm, buffers in zip(norms, originals, strict=True):
            norm._buffers.update(buffers)


def _unwrap(wrapped: list[_RecomputedForward]) -> None:
    for one in wrapped:
        one.undo()
