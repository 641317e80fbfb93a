"""The built page: files that were listed once at the start, looked up by their exact names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, final

from epochal.durable.beneath import read_beneath
from epochal.web.site.api_error import not_found
from epochal.web.site.route import RawAnswer

if TYPE_CHECKING:
    from epochal.web.site.route import ApiCall
    from epochal.web.site.site import Site

STATIC_DIR = Path(__file__).parents[1] / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
INDEX = "index.html"
ASSETS = "assets"
_MAX_BYTES = 16 << 20
_HASHED = re.compile(r".*-[A-Za-z0-9_-]{8,}\.[a-z0-9]+")

MISSING_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Epochal</title></head>
<body>
<h1>Epochal</h1>
<p>The server works, but the page was not built.</p>
<p>In a checkout of Epochal, type <code>make web</code>, and start <code>epochal serve</code> again.
An installed Epochal has the page inside: install it again if you see this.</p>
</body>
</html>
"""


@final
class StaticFiles:
    """The files of the built page, by name; read from disk once."""

    def __init__(self, folder: Path = STATIC_DIR) -> None:
        self._files: dict[str, RawAnswer] = {}
        for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
            name = path.relative_to(folder).as_posix()
            if path.suffix in TYPES and path.is_file() and not path.is_symlink():
                self._files[name] = _load(folder, name)

    @property
    def index(self) -> RawAnswer:
        """The page, or how to build it."""
        missing = RawAnswer(content=MISSING_PAGE.encode(), type=TYPES[".html"])
        return self._files.get(INDEX, missing)

    def find(self, name: str) -> RawAnswer | None:
        """A file by its exact name."""
        return self._files.get(name)


def _load(folder: Path, name: str) -> RawAnswer:
    cache = "public, max-age=31536000, immutable" if _HASHED.fullmatch(name) else "no-cache"
    return RawAnswer(
        content=read_beneath(folder, name, max_bytes=_MAX_BYTES),
        type=TYPES[Path(name).suffix],
        headers={"cache-control": cache},
    )


def get_page(site: Site, call: ApiCall) -> RawAnswer:
    """The page for any address of it, or a file beside it."""
    found = site.static.find(call.path.get("page", INDEX)) if len(call.path) < 2 else None
    return found or site.static.index


def get_asset(site: Site, call: ApiCall) -> RawAnswer:
    """A script, style or font of the page."""
    found = site.static.find(f"{ASSETS}/{call.path['name']}")
    if found is None:
        raise not_found()
    return found
