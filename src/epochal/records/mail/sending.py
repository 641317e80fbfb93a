"""Sends mail from threads, tries again for a while, and never keeps anybody waiting for long."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, final

from epochal.records.mail.outbox import claimed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from epochal.records.mail.outbox import Parcel

_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds between tries of one process."""

WAIT_SECONDS = 15.0
"""How long one answer of a server may take."""


@final
class Sending:
    """Mail on its way, each parcel in a thread of its own that ends with the process.

    Args:
        pauses: Seconds between tries; after the last one the parcel stays in the outbox.
    """

    def __init__(self, pauses: Sequence[float] = _PAUSES) -> None:
        self._pauses = tuple(pauses)
        self._is_over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._left: dict[int, Parcel] = {}

    def start(self, parcels: Iterable[Parcel]) -> None:
        """Begin to send these; returns at once."""
        for parcel in parcels:
            key = len(self._threads)
            self._left[key] = parcel
            thread = threading.Thread(
                target=self._work, args=(key, parcel), name="epochal-mail", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def wait(self, seconds: float) -> list[Parcel]:
        """Wait until all is sent, but not longer; gives what is not sent, with the reason.

        Nothing is tried again after that.
        """
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._is_over.set()
        return [parcel for _, parcel in sorted(self._left.items())]

    def _work(self, key: int, parcel: Parcel) -> None:
        for pause in (*self._pauses, None):
            with claimed(parcel) as mine:
                rest = None if mine is None else mine.send(seconds=WAIT_SECONDS)
            if rest is None:
                del self._left[key]
                return
            self._left[key] = parcel = rest
            if rest.is_final or pause is None or self._is_over.wait(pause):
                return
