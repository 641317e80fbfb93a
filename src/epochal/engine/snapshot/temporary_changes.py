"""Changes of a run that last for a block: another split, other modes of modules."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from epochal.engine.device.seeding import derive_seed, seeded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from epochal.engine.run.engine_run import EngineRun


@contextmanager
def working_on_split(run: EngineRun, split: str) -> Iterator[None]:
    """Switch the run to another split, with its own random numbers, for a block."""
    before = run.split, run.loader_name, run.batch_index
    with seeded(derive_seed(run.seed, "eval", split)):
        run.split = split
        try:
            yield
        finally:
            run.events.has_run_user_code = True  # code of the task ran
            run.split, run.loader_name, run.batch_index = before


@contextmanager
def keeping_training_modes(*parts: nn.Module | None) -> Iterator[None]:
    """Restore the training mode of each module at the end of a block."""
    roots = [part for part in parts if part is not None]
    modes = [(module, module.training) for root in roots for module in root.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
