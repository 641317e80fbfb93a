from __future__ import annotations

from epochal.records.folder.writer import _readme
from epochal.records.index.run_rows import strip_readme_template, to_fts_query


def test_the_template_of_a_readme_is_not_searched() -> None:
    assert strip_readme_template(_readme("warm start", "")) == "# warm start"


def test_the_text_of_users_is_searched() -> None:
    page = _readme("warm start", "Lower loss?\n\nNo.")
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
