"""The addresses of a run in other tools, which trackers store in its folder."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from epochal.durable.beneath import read_beneath
from epochal.records.folder import redacted

if TYPE_CHECKING:
    from pathlib import Path

TRACKERS = ("wandb", "mlflow")
_FILE = "url.json"
_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[!-;=?-~]*)?")
_LOGIN = re.compile(r"//[^/@]*@")
_MAX_BYTES = 4096


def write_tracker_url(run_dir: Path, tracker: str, url: str | None) -> None:
    """Store the address of a run in another tool; ignores anything but web addresses."""
    if url and _URL.fullmatch(plain := _LOGIN.sub("//", url)):
        folder = run_dir / tracker
        folder.mkdir(exist_ok=True)
        redacted.write_json(folder / _FILE, {"url": plain})


def read_tracker_urls(run_dir: Path) -> dict[str, str]:
    """The addresses of a run by the name of the tracker."""
    found = {}
    for name in TRACKERS:
        try:
            value = json.loads(read_beneath(run_dir, f"{name}/{_FILE}", max_bytes=_MAX_BYTES))
        except (OSError, ValueError):
            continue
        url = value.get("url") if isinstance(value, dict) else None
        if isinstance(url, str) and _URL.fullmatch(url):  # others may have written the file
            found[name] = url
    return found
