"""The README of a run: title and description, which users may edit at any time."""

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
    """The parts of a README."""

    title: str
    """The first heading: the tag, unless a user changed it."""

    text: str
    """The text below the title, up to the last rule; empty if it is only the prompt."""

    rest: str = ""
    """The last rule and everything below it."""


def read_readme(run_dir: Path) -> RunReadme:
    """The README of a run; empty if it has none."""
    return parse_readme(durable.find_text(run_dir / README_FILE))


def parse_readme(content: str) -> RunReadme:
    """The parts of a README, which users may have edited."""
    lines = content.lstrip("\ufeff").splitlines()
    heading = next((i for i, line in enumerate(lines) if line.strip()), len(lines))
    has_title = heading < len(lines) and lines[heading].startswith("# ")
    title = lines[heading].removeprefix("# ").strip() if has_title else ""
    start = heading + 1 if has_title else heading
    rules = [i for i in range(start, len(lines)) if lines[i].strip() == _RULE]
    end = rules[-1] if rules else len(lines)  # the user's text may contain rules, too
    text = "\n".join(lines[start:end]).strip()
    rest = "\n".join(lines[end:])
    return RunReadme(title, "" if text == _PROMPT else text, rest)


def write_readme(run_dir: Path, page: RunReadme) -> None:
    """Replace the README of a run; may raise OSError."""
    title = " ".join(page.title.split()) or UNTITLED
    parts = [f"# {title}", page.text.strip() or _PROMPT, page.rest.strip("\n")]
    text = "\n\n".join(part for part in parts if part)
    durable.write_text(run_dir / README_FILE, f"{redact(text)}\n")
