"""Tests of splitting queries into words, texts and signs."""

from __future__ import annotations

import pytest

from epochal.errors import ConfigError
from epochal.records.query.tokens import Token, Written, split


def texts(text: str) -> list[str]:
    return [token.text for token in split(Written(text, "--where"))]


def test_words_signs_and_marks_need_no_spaces() -> None:
    assert texts("optim.lr>1e-4 and(a!=-3)") == [
        "optim.lr", ">", "1e-4", "and", "(", "a", "!=", "-3", ")", "",
    ]  # fmt: skip


def test_quoted_texts_hold_anything() -> None:
    assert texts("""tag = "it's (1)" or tag='a\\'b \\\\ \\x'""")[2:7] == [
        "it's (1)", "or", "tag", "=", "a'b \\ x",
    ]  # fmt: skip


def test_tokens_know_their_place() -> None:
    assert split(Written("a  >= 2 ", "--where"))[1:] == [
        Token("sign", ">=", 3, 5),
        Token("word", "2", 6, 7),
        Token("end", "", 7, 7),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tag = a;b", "';' means nothing here"),
        ("tag = {x}", "'{' means nothing here"),
        ("tag = `x`", "'`' means nothing here"),
        ("tag = $HOME", "'$' means nothing here"),
        ('tag = "abc', "a quote is opened and not closed"),
        ('tag = "abc\\"', "a quote is opened and not closed"),
        ("tag = \x00", "means nothing here"),
        ("tag = \ud800", "means nothing here"),
        ('tag = "\ud800"', "holds a character that no text can have"),
        ("tag = 'a\x00b'", "holds a character that no text can have"),
        ("x" * 10_001, "longer than 10000 characters"),
    ],
)
def test_what_means_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match="--where: ") as caught:
        split(Written(text, "--where"))
    assert message in str(caught.value)


def test_mistake_points_at_its_place() -> None:
    with pytest.raises(ConfigError) as caught:
        split(Written("  lr > 1 ; x", "--where"))
    assert str(caught.value).splitlines() == [
        "--where: ';' means nothing here",
        "    lr > 1 ; x",
        "           ^",
        "  put a text with such characters into quotes",
    ]


def test_long_queries_are_shown_around_the_mistake() -> None:
    with pytest.raises(ConfigError) as caught:
        split(Written("a = 1 and " * 50 + "{" + " and b = 2" * 50, "--where"))
    _, line, carets, _ = str(caught.value).splitlines()
    assert len(line) <= 104
    assert line[carets.index("^")] == "{"


def test_lines_of_a_query_are_shown_as_one() -> None:
    with pytest.raises(ConfigError) as caught:
        split(Written("a = 1\nand\t{", "where"))
    _, line, carets, _ = str(caught.value).splitlines()
    assert line == "    a = 1 and {"
    assert line[carets.index("^")] == "{"
