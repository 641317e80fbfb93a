"""A real Chromium: an installed one, or that of the npm package, which needs no root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WEB = Path(__file__).resolve().parents[2] / "web"
UNPACKED = WEB / "node_modules" / ".cache" / "chromium"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> tuple[Path, dict[str, str]]:
    """The browser, and the environment it needs; skips the test if there is none."""
    installed = next(filter(None, map(shutil.which, NAMES)), None)
    if installed:
        return Path(installed), dict(os.environ)
    if not (WEB / "node_modules" / "@sparticuz" / "chromium").is_dir():
        pytest.skip("no Chromium: type `make web`")
    UNPACKED.parent.mkdir(exist_ok=True)
    command = [sys.executable, WEB / "node.py", "unpack_chromium.mjs", UNPACKED]
    subprocess.run(command, check=True, timeout=100)
    # Libraries of the system come first: those of the package are for machines without them.
    return UNPACKED / "chromium", dict(os.environ) | {
        "LD_LIBRARY_PATH": str(UNPACKED / "al2023" / "lib") if _lacks_libraries() else "",
        "FONTCONFIG_PATH": str(UNPACKED / "fonts") if shutil.which("fc-list") is None else "",
    }


def _lacks_libraries() -> bool:
    done = subprocess.run(["ldd", UNPACKED / "chromium"], capture_output=True, text=True)
    return "not found" in done.stdout
