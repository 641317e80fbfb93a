"""Every snippet of README and docs runs or is checked.

A page's snippets run from top to bottom in one process, inside a copy of ``examples/digits``.
HTML comments on the lines before a snippet say how to test it:

    <!-- file: digits/noisy.py -->    write it to that file instead of running it
    <!-- check -->                    YAML or TOML: it loads without a problem
    <!-- check: whole -->             the same, and it is an experiment without a mistake
    <!-- not-a-config -->             YAML or TOML: do not check it
    <!-- no-run: reason -->           Python: it cannot run here
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import forked
from epochal.check import check
from epochal.config import load

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "digits"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_MARK = re.compile(r"<!-- *(?P<name>[a-z-]+)(?:: *(?P<value>.*?))? *-->$")
_FENCE = re.compile(r"```(?P<language>\w*)$")
_CONFIG_MARKS = {"file", "check", "not-a-config"}
_KNOWN_MARKS = _CONFIG_MARKS | {"no-run"}
_RUN = """
import sys
from pathlib import Path
names = {"__name__": "__main__"}
sys.path.insert(0, ".")
exec(compile(Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2], "exec"), names)
"""


@dataclass(frozen=True)
class Snippet:
    """One fenced block of a page, with the marks before it."""

    language: str
    text: str
    line: int
    marks: dict[str, str]


def read_snippets(page: Path) -> list[Snippet]:
    """The fenced blocks of a page, from top to bottom."""
    found: list[Snippet] = []
    marks: dict[str, str] = {}
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), start=1))
    for number, line in lines:
        if mark := _MARK.match(line):
            marks[mark["name"]] = mark["value"] or ""
        elif fence := _FENCE.match(line):
            body = []
            for _, inner in lines:
                if inner == "```":
                    break
                body.append(inner)
            found.append(Snippet(fence["language"], "\n".join(body) + "\n", number, marks))
            marks = {}
        elif line.strip():
            marks = {}
    return found


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the digits example, as a reader would have it."""
    copy = tmp_path / "digits"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    return copy


def write_files(snippets: list[Snippet], folder: Path) -> None:
    for snippet in snippets:
        if name := snippet.marks.get("file"):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(snippet.text, encoding="utf-8")


def pages_with(is_wanted: Callable[[Snippet], bool]) -> list[Path]:
    return [page for page in PAGES if any(map(is_wanted, read_snippets(page)))]


def is_run(snippet: Snippet) -> bool:
    return snippet.language == "python" and not {"no-run", "file"} & snippet.marks.keys()


def is_checked(snippet: Snippet) -> bool:
    return "check" in snippet.marks


@pytest.mark.parametrize("page", pages_with(is_run), ids=name_of)
def test_python_snippets_run(page: Path, folder: Path) -> None:
    snippets = read_snippets(page)
    script = ""
    for snippet in filter(is_run, snippets):
        # Blank lines keep the line numbers of the page in a traceback.
        script += "\n" * (snippet.line - script.count("\n")) + snippet.text
    write_files(snippets, folder)
    (folder / "page.txt").write_text(script, encoding="utf-8")
    done = forked.run("-c", _RUN, "page.txt", name_of(page), cwd=folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.mark.parametrize("page", pages_with(is_checked), ids=name_of)
def test_config_snippets_have_no_mistakes(page: Path, folder: Path) -> None:
    snippets = read_snippets(page)
    write_files(snippets, folder)
    for snippet in filter(is_checked, snippets):
        path = folder / f"snippet.{snippet.language}"
        path.write_text(snippet.text, encoding="utf-8")
        config = load(path)
        problems = config.problems
        if snippet.marks["check"] == "whole":
            problems = check(config).problems
        shown = "\n\n".join(map(str, problems))
        assert not problems, f"{name_of(page)}:{snippet.line}\n{shown}"


def test_links_to_other_pages_lead_to_files() -> None:
    broken = [
        f"{name_of(page)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not target.startswith(("http://", "https://", "mailto:"))
        and not (page.parent / target).exists()
    ]
    assert broken == []


def test_snippets_have_the_marks_that_they_need() -> None:
    wrong = []
    for page in PAGES:
        for snippet in read_snippets(page):
            marks = snippet.marks.keys()
            is_config = snippet.language in {"yaml", "toml"}
            if not marks <= _KNOWN_MARKS or (is_config and not marks & _CONFIG_MARKS):
                wrong.append(f"{name_of(page)}:{snippet.line}: {[*marks]}")
    assert wrong == [], f"marks are {_KNOWN_MARKS}; a config needs one of {_CONFIG_MARKS}"
