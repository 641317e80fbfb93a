"""The interfaces of output stages and evaluation stages, which run after the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from epochal.engine.interfaces.run import Run

Samples = dict[str, Any]
"""Columns of a batch or of a whole pass, by name: lists, or tensors on the host."""


class OutputStage(ABC):
    """Changes or saves the samples of each batch; a function of them is a stage too."""

    on: tuple[str, ...] = ("val", "test", "predict")
    """The splits in which it is valid; the engine leaves it out of others."""

    def start(self, run: Run, split: str) -> None:  # noqa: B027 - optional
        """Before the first batch of a loader."""

    @abstractmethod
    def process(self, *args: Any, **kwargs: Any) -> Samples | None:  # noqa: ANN401 - see below
        """The samples for the next stage, or None to leave them as they are.

        Define it with any of ``samples``, ``out``, ``batch`` and ``run``.
        """

    def end(self, run: Run, split: str, *, is_whole: bool) -> None:  # noqa: B027 - optional
        """After the last batch of a loader, or without ``is_whole`` after an error."""


class EvaluationStage(ABC):
    """Acts on a whole evaluation; a function is a stage too."""

    on: tuple[str, ...] = ("val", "test")
    """The splits in which it is valid; the engine leaves it out of others."""

    @abstractmethod
    def evaluate(self, *args: Any, **kwargs: Any) -> Mapping[str, float] | None:  # noqa: ANN401 - see below
        """Further metrics by name, or None.

        Define it with any of ``samples``, ``metrics``, ``run`` and ``split``. ``samples`` are those
        of all batches after the output stages; ``metrics`` has the values so far, without split.
        """
