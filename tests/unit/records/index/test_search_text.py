from __future__ import annotations

from epochal.records.folder.writer import _readme
from epochal.records.index.search_text import strip_readme_template, to_fts_query


def test_what_every_page_says_cannot_be_found() -> None:
    assert strip_readme_template(_readme("warm start", "")) == "# warm start"


def test_what_people_wrote_is_kept() -> None:
    page = _readme("warm start", "Lower loss?\n\nNo.")
    assert strip_readme_template(page) == "# warm start\n\nLower loss?\n\nNo."
    assert strip_readme_template(f"{page}\nWritten below.\n").endswith("Written below.")


def test_a_question_is_made_of_quoted_words_alone() -> None:
    for words, match in [
        (["resnet"], '"resnet"*'),
        (["optim.lr", "adam"], '"optim.lr"* AND "adam"*'),
        (['a" OR "b'], '"a  OR  b"*'),
        (["学习率"], '" 学  习  率 "*'),
        (["-", "*", '"'], ""),
        ([], ""),
    ]:
        assert to_fts_query(words) == match
