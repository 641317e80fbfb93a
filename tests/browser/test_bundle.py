"""The built page: how much a browser loads first, and what its files may not contain."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from epochal.engine.interfaces.run import Run
from epochal.web.site.static_files import STATIC_DIR

INDEX = STATIC_DIR / "index.html"
MOST_FIRST_BYTES = 150_000
MOST_BYTES = 1_500_000

pytestmark = pytest.mark.skipif(
    not INDEX.is_file(), reason="the page is not built: type `make web`"
)


def test_the_first_scripts_are_small() -> None:
    names = re.findall(r'(?:src|href)="/(assets/[^"]+\.js)"', INDEX.read_text())
    assert names
    size = sum(len(gzip.compress((STATIC_DIR / name).read_bytes())) for name in names)
    assert size <= MOST_FIRST_BYTES
    assert sum(path.stat().st_size for path in STATIC_DIR.rglob("*")) <= MOST_BYTES


def test_the_page_has_no_inline_script_no_foreign_address_and_no_evaluation() -> None:
    page = INDEX.read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|<style|\son\w+=", page)
    for path in STATIC_DIR.rglob("*.js"):
        text = path.read_text()
        assert not re.search(r"\beval\(|new Function\b|document\.write|insertAdjacentHTML", text), (
            path
        )
        found = set(re.findall(r"https?://[\w.-]+", text))
        assert found <= {"http://www.w3.org", "https://svelte.dev"}, path
    for path in STATIC_DIR.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//|@import", path.read_text()), path


def test_files_have_hashed_names() -> None:
    for path in (STATIC_DIR / "assets").iterdir():
        assert re.fullmatch(r"[\w.]+-[\w-]{8}\.(js|css)", path.name), path


def test_methods_that_texts_of_the_page_name_exist() -> None:
    texts = Path(__file__).resolve().parents[2] / "web" / "src" / "text"
    for path in (texts / "en.ts", texts / "zh.ts"):
        named = re.findall(r"\brun\.(\w+)\(", path.read_text("utf-8"))
        assert named, path
        assert not [name for name in named if not hasattr(Run, name)], path
