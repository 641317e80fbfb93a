"""Tests of epochal.records.folder.readme."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.records.folder.folder import RunFolder
from epochal.records.folder.readme import RunReadme, parse_readme, read_readme, write_readme
from epochal.records.folder.writer import RunWriter

if TYPE_CHECKING:
    from pathlib import Path


def test_edited_readmes_are_parsed() -> None:
    for content, title, text in [
        ("", "", ""),
        ("# a\n", "a", ""),
        ("# a\n\nwhy\n\nnot\n", "a", "why\n\nnot"),
        ("\ufeff\n# a\r\nwhy\r\n", "a", "why"),
        ("why\n", "", "why"),
        ("# a\n\nwhy\n\n---\n\nmachine\n", "a", "why"),
        ("# a\n\nwhy\n\n---\n\nmore\n\n---\n\nmachine\n", "a", "why\n\n---\n\nmore"),
        ("## b\n\nwhy\n", "", "## b\n\nwhy"),
    ]:
        page = parse_readme(content)
        assert (page.title, page.text) == (title, text)


def test_the_readme_of_a_new_run_has_its_tag_and_no_text(tmp_path: Path) -> None:
    RunWriter(RunFolder(tmp_path)).write_readme("digits", "")
    assert (read_readme(tmp_path).title, read_readme(tmp_path).text) == ("digits", "")


def test_a_readme_is_rewritten_and_its_last_part_stays(tmp_path: Path) -> None:
    RunWriter(RunFolder(tmp_path)).write_readme("digits", "why")
    before = read_readme(tmp_path)
    write_readme(tmp_path, RunReadme("better", "because\n\nof that", before.rest))
    assert read_readme(tmp_path) == RunReadme("better", "because\n\nof that", before.rest)
    content = (tmp_path / "README.md").read_text()
    assert content.startswith("# better\n\nbecause\n\nof that\n\n---\n")
    assert "np.fromfile" in content


def test_a_missing_readme_is_empty_and_can_be_written(tmp_path: Path) -> None:
    assert read_readme(tmp_path) == RunReadme("", "")
    write_readme(tmp_path, RunReadme("", ""))
    assert read_readme(tmp_path) == RunReadme("untitled", "")


def test_a_readme_has_no_secrets(tmp_path: Path) -> None:
    token = "ghp_" + "a1B2" * 10
    write_readme(tmp_path, RunReadme("a", f"with {token}"))
    assert token not in (tmp_path / "README.md").read_text()
