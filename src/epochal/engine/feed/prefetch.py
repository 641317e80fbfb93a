"""One batch ahead: the next one travels to the device while a step works on this one."""

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
    """The batches as ``send`` gives them, each sent before the one in front of it is given out.

    ``receive`` is called when the batch that was sent last is about to be needed. What goes
    wrong while a batch is fetched or sent is raised where that batch is due.
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
    """Brings batches to a CUDA device, one step early, on a stream of its own.

    Batches lie in memory of that stream, which only the next batches take over. Each of them
    waits for all work that was given out before it, so nothing is overwritten in use.

    Args:
        move: Where and as what batches are needed.
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

        on_the_way: list[Batch] = []

        def send(batch: Batch) -> Batch:
            # Kept until it was received: a batch from the device itself would be overwritten.
            on_the_way.append(batch)
            given.record(main)
            side.wait_event(given)
            with torch.cuda.stream(side):
                moved = move(batch)
            sent.record(side)
            return moved

        def receive() -> None:
            main.wait_event(sent)
            on_the_way.clear()

        return prefetch_one(batches, send, receive)
