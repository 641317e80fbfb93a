from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.records.folder.folder import RunFolder
from epochal.records.folder.writer import RunWriter
from epochal.records.index.run_rows import strip_readme_template, to_fts_query

if TYPE_CHECKING:
    from pathlib import Path


def make_readme(path: Path, tag: str, desc: str) -> str:
    RunWriter(RunFolder(path)).write_readme(tag, desc)
    return (path / "README.md").read_text()


def test_the_template_of_a_readme_is_not_searched(tmp_path: Path) -> None:
    assert strip_readme_template(make_readme(tmp_path, "warm start", "")) == "# warm start"


def test_the_text_of_users_is_searched(tmp_path: Path) -> None:
    page = make_readme(tmp_path, "warm start", "Lower loss?\n\nNo.")
    assert strip_readme_template(page) == "# warm start\n\nLower loss?\n\nNo."
    assert strip_readme_template(f"{page}\nWritten below.\n").endswith("Written below.")


def test_a_query_consists_of_quoted_prefixes() -> None:
    for words, match in [
        (["resnet"], '"resnet"*'),
        (["optim.lr", "adam"], '"optim.lr"* AND "adam"*'),
        (['a" OR "b'], '"a  OR  b"*'),
        (["学习率"], '" 学  习  率 "*'),
        (["-", "*", '"'], ""),
        ([], ""),
    ]:
        assert to_fts_query(words) == match
