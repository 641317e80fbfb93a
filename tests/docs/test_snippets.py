"""Every snippet of README and docs does what the page says.

A page's snippets run from top to bottom in one process, inside a copy of ``examples/digits``.
HTML comments on the lines before a snippet say what else is done with it:

    <!-- file: digits/noisy.py -->    it is first written to that file; not run by itself
    <!-- check -->                    YAML or TOML: loads without a problem
    <!-- check: whole -->             the same, and is an experiment without a mistake
    <!-- no-run: reason -->           Python: cannot run here
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

import forked
from epochal.check import check
from epochal.config import load

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "digits"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_MARK = re.compile(r"<!-- *(?P<name>[a-z-]+)(?:: *(?P<value>.*?))? *-->$")
_FENCE = re.compile(r"```(?P<language>\w*)$")
_KNOWN_MARKS = {"file", "check", "no-run", "not-a-config"}
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


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_marks_are_spelt_right(page: Path) -> None:
    for snippet in read_snippets(page):
        assert set(snippet.marks) <= _KNOWN_MARKS, f"{name_of(page)}:{snippet.line}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_snippets_run(page: Path, folder: Path) -> None:
    snippets = read_snippets(page)
    own = {"no-run", "file"}
    script = ""
    for snippet in snippets:
        if snippet.language == "python" and not own & snippet.marks.keys():
            # Blank lines keep the line numbers of the page in a traceback.
            script += "\n" * (snippet.line - script.count("\n")) + snippet.text
    if not script:
        return
    write_files(snippets, folder)
    (folder / "page.txt").write_text(script, encoding="utf-8")
    done = forked.run("-c", _RUN, "page.txt", name_of(page), cwd=folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_config_snippets_have_no_mistakes(page: Path, folder: Path) -> None:
    snippets = read_snippets(page)
    write_files(snippets, folder)
    for snippet in snippets:
        if "check" not in snippet.marks:
            continue
        path = folder / f"snippet.{snippet.language}"
        path.write_text(snippet.text, encoding="utf-8")
        config = load(path)
        problems = config.problems
        if snippet.marks["check"] == "whole":
            problems = check(config).problems
        shown = "\n\n".join(map(str, problems))
        assert not problems, f"{name_of(page)}:{snippet.line}\n{shown}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_to_other_pages_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_configs_on_a_page_are_checked_or_excused(page: Path) -> None:
    for snippet in read_snippets(page):
        if snippet.language in {"yaml", "toml"}:
            known = {"check", "file", "not-a-config"} & snippet.marks.keys()
            assert known, f"{name_of(page)}:{snippet.line}: mark it with <!-- check -->"
