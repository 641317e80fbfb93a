"""The folder map in docs/design.md names the folders that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "epochal"


def read_map(page: str) -> set[str]:
    """Folders below src/epochal that the fenced block after "## Folders" names.

    A line starts with one folder or with several: ``pages/, draw/``. Its indentation says which
    folder they are in: ``engine/`` and, two spaces further in, ``feed/`` are ``engine`` and
    ``engine/feed``. A folder in the text, such as ``; report/: figures``, is in that of its line.
    """
    block = page.partition("\n## Folders\n")[2].partition("\n```")[2].partition("\n```")[0]
    found: set[str] = set()
    parents: list[tuple[int, str]] = []
    for line in block.splitlines()[1:]:
        start = re.match(r"( *)((?:[\w/]+/(?:, )?)+)", line)
        if start is None:
            continue
        indent, names = len(start[1]), start[2].split(", ")
        parents = [one for one in parents if one[0] < indent]
        folder = "".join(parent for _, parent in parents)
        found |= {f"{folder}{name}" for name in names}
        found |= {f"{folder}{names[0]}{inner}" for inner in re.findall(r"; (\w+/):", line)}
        parents.append((indent, names[0]))
    return {path.removeprefix("src/").removeprefix("epochal/").rstrip("/") for path in found} - {""}


def folders() -> set[str]:
    """Every folder of the package that has modules; the template of a project is data."""
    paths = {path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")}
    return {path.as_posix() for path in paths if path.parts and "template" not in path.parts}


def test_map_names_every_folder_and_no_other() -> None:
    named = read_map((ROOT / "docs" / "design.md").read_text(encoding="utf-8"))
    assert {"not on disk": named - folders(), "not in the map": folders() - named} == {
        "not on disk": set(),
        "not in the map": set(),
    }


def test_map_is_read_by_indentation() -> None:
    rows = [
        "src/epochal/",
        "  engine/  the loop",
        "    loop.py",
        "    feed/, step/  batches; updates",
        "  cli/  verbs; draw/: tables",
    ]
    page = "\n".join(["# Design", "## Folders", "", "```text", *rows, "```", "other/"])
    assert read_map(page) == {"engine", "engine/feed", "engine/step", "cli", "cli/draw"}
