"""Copies the next batch to the device during a step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from epochal.engine.device.move import BatchMover
    from epochal.engine.interfaces.task import Batch

_NONE = object()


def prefetch_one(
    batches: Iterable[Batch], send: Callable[[Batch], Batch], receive: Callable[[], None]
) -> Iterator[Batch]:
    """The results of ``send``, called for each batch before the previous one is yielded.

    ``receive`` is called before the batch that was sent last is used. An error while a batch is
    read or sent is raised where that batch is due.
    """
    sending = map(send, batches)
    batch = next(sending, _NONE)
    while batch is not _NONE:
        receive()
        failure: Exception | None = None
        following: Batch = _NONE
        try:
            following = next(sending, _NONE)
        except Exception as error:
            failure = error
        yield batch
        if failure is not None:
            raise failure
        batch = following


@final
class CudaPrefetcher:
    """Copies batches to a CUDA device one step early, on a separate stream.

    Batches are in memory of that stream, which only later batches reuse. Each copy waits for all
    work queued before it, so no batch is overwritten in use.
    """

    def __init__(self, move: BatchMover) -> None:
        self._move = replace(move, is_pinned=True)
        self._side: torch.cuda.Stream | None = None

    def __call__(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches of one pass on the device, in their order."""
        device, move = self._move.device, self._move
        if self._side is None:
            self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # as below
        side, main = self._side, torch.cuda.current_stream(device)
        given, sent = (torch.cuda.Event() for _ in range(2))  # type: ignore[no-untyped-call]  # torch has no types here

        pending: list[Batch] = []

        def send(batch: Batch) -> Batch:
            # Held until it is received: a batch that is on the device would be overwritten.
            pending.append(batch)
            given.record(main)
            side.wait_event(given)
            with torch.cuda.stream(side):
                moved = move(batch)
            sent.record(side)
            return moved

        def receive() -> None:
            main.wait_event(sent)
            pending.clear()

        return prefetch_one(batches, send, receive)
