"""Lines that are redrawn in place while a command works, if standard output is a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self, final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.live import Live


@final
class LiveLines:
    """Lines on a terminal, between ``with`` and its end; elsewhere nothing is drawn."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def is_shown(self) -> bool:
        """Whether there is a terminal to draw on."""
        return self._live is not None

    def draw(self, lines: Iterable[str]) -> None:
        """Replace the lines."""
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text("\n".join(lines)), refresh=True)
