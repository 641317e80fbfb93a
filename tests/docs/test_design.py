"""The folder map in docs/design.md names the folders that exist."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "epochal"


def read_map(page: str) -> set[str]:
    """Folders below src/epochal that the fenced block after "## Folders" names.

    The first word of a line is a folder if it ends in a slash. Its indentation says which folder
    it is in: ``engine/`` and, two spaces further in, ``feed/`` are ``engine`` and ``engine/feed``.
    """
    block = page.partition("\n## Folders\n")[2].partition("\n```")[2].partition("\n```")[0]
    found: set[str] = set()
    parents: list[tuple[int, str]] = []
    for line in block.splitlines()[1:]:
        name = line.split(maxsplit=1)[0] if line.strip() else ""
        if not name.endswith("/"):
            continue
        indent = len(line) - len(line.lstrip())
        parents = [one for one in parents if one[0] < indent]
        path = "".join((*(parent for _, parent in parents), name))
        parents.append((indent, name))
        found.add(path.removeprefix("src/").removeprefix("epochal/").removesuffix("/"))
    return found - {""}


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
        "    feed/  batches",
        "  cli/  verbs",
    ]
    page = "\n".join(["# Design", "## Folders", "", "```text", *rows, "```", "other/"])
    assert read_map(page) == {"engine", "engine/feed", "cli"}
