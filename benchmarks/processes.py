"""Starts fresh processes of the benchmark, with or without a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path
from typing import Any

CHILD = Path(__file__).parent / "segments.py"
ROWS, COLUMNS = 40, 120
LAST_WORDS = 2000
TIMEOUT_SECONDS = 900
ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "1",  # otherwise training in a thread uses other memory
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TERM": "xterm-256color",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class Terminal:
    """A pseudo-terminal that keeps the end of its output."""

    def __init__(self) -> None:
        self._inner, self.end = pty.openpty()
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._text = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._inner, 65536)
            except OSError:  # the other end was closed
                return
            if not chunk:
                return
            self._text = (self._text + chunk)[-LAST_WORDS:]

    def close(self) -> str:
        """The last lines of its output."""
        os.close(self.end)
        self._reader.join()
        os.close(self._inner)
        return self._text.decode(errors="replace")


def launch(mode: str, *, terminal: bool, **options: object) -> dict[str, Any]:
    """The result of one process, or ``{"error": its last output}``."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output.json"
        words = [sys.executable, str(CHILD), mode, str(output)]
        for name, value in options.items():
            words += (
                [f"--{name}"]
                if value is True
                else []
                if value is False
                else [f"--{name}", str(value)]
            )
        words += ["--began", str(time.monotonic())]
        code, said = _run(words, Path(folder), terminal=terminal)
        if code == 0 and output.exists():
            found: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
            return found
        return {"error": said.strip() or f"exit code {code}"}


def _run(words: list[str], folder: Path, *, terminal: bool) -> tuple[int, str]:
    environment = os.environ | ENVIRONMENT
    screen = Terminal() if terminal else None
    with (folder / "log").open("w+b") as log:
        out = log if screen is None else screen.end
        try:
            done = subprocess.run(
                words,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL if screen is None else screen.end,
                stdout=out,
                stderr=out,
                check=False,
                timeout=TIMEOUT_SECONDS,
            )
            code, said = done.returncode, ""
        except subprocess.TimeoutExpired:
            code, said = 1, f"took more than {TIMEOUT_SECONDS} s"
        if screen is not None:
            said = screen.close() + said
        else:
            log.seek(0)
            said = log.read().decode(errors="replace")[-LAST_WORDS:] + said
    return code, said
