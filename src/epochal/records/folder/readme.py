"""The page of a run: its title and its purpose, which people may rewrite at any time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal import durable
from epochal.records.secrets import redact

if TYPE_CHECKING:
    from pathlib import Path

README_FILE = "README.md"
UNTITLED = "untitled"
"""The title of a run without a tag."""

_PROMPT = "_Write here what this run is for and what came of it._"
_RULE = "---"


@final
@dataclass(frozen=True, slots=True)
class RunReadme:
    """What people say of a run."""

    title: str
    """The first heading: the tag, unless somebody wrote another one."""

    text: str
    """What stands below it, up to the line that ends it; empty as long as nobody wrote anything."""

    rest: str = ""
    """What stands below that line, with the line."""


def read_readme(run_dir: Path) -> RunReadme:
    """What the page of a run says; empty if it has none."""
    try:
        return parse_readme((run_dir / README_FILE).read_text("utf-8", "replace"))
    except OSError:
        return RunReadme("", "")


def parse_readme(content: str) -> RunReadme:
    """The parts of a page, however people wrote it."""
    lines = content.lstrip("\ufeff").splitlines()
    heading = next((i for i, line in enumerate(lines) if line.strip()), len(lines))
    has_title = heading < len(lines) and lines[heading].startswith("# ")
    title = lines[heading].removeprefix("# ").strip() if has_title else ""
    start = heading + 1 if has_title else heading
    rules = [i for i in range(start, len(lines)) if lines[i].strip() == _RULE]
    end = rules[-1] if rules else len(lines)  # a rule of one's own may come before ours
    text = "\n".join(lines[start:end]).strip()
    rest = "\n".join(lines[end:])
    return RunReadme(title, "" if text == _PROMPT else text, rest)


def write_readme(run_dir: Path, page: RunReadme) -> None:
    """Put ``page`` in place of what was there.

    Raises:
        OSError: It cannot be written.
    """
    title = " ".join(page.title.split()) or UNTITLED
    parts = [f"# {title}", page.text.strip() or _PROMPT, page.rest.strip("\n")]
    text = "\n\n".join(part for part in parts if part)
    durable.write_text(run_dir / README_FILE, f"{redact(text)}\n")
