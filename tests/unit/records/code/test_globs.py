"""Tests of epochal.records.code.globs."""

from __future__ import annotations

import pytest

from epochal.records.code.globs import Glob


def fits(text: str, path: str, *, is_anchored: bool = True) -> bool:
    return Glob(text, is_anchored=is_anchored).fits(path.split("/"))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a*c", "abbc"),
        ("*a*b", "xaayb"),
        ("a?c", "abc"),
        ("*", ".hidden"),
        ("**/c", "c"),
        ("**/c", "a/b/c"),
        ("a/**", "a/b/c"),
        ("a/**/d", "a/d"),
        ("a/**/c/**/e", "a/c/c/d/e"),
        ("**/b/c", "b/b/c"),
        ("[a-c]1", "b1"),
        ("[!a-c]1", "d1"),
        ("[!]a]", "b"),
        ("[]a]", "]"),
        ("[a-]", "-"),
        ("[a--b]", "[a--b]"),
        ("[a&&b]", "&"),
        ("a\\*", "a*"),
        ("a\\", "a\\"),
        ("a[", "a["),
    ],
)
def test_pattern_fits(text: str, path: str) -> None:
    assert fits(text, path)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a*c", "a/c"),
        ("a?c", "a/c"),
        ("a", "b/a"),
        ("a/**", "a"),
        ("a/**/d", "a/b"),
        ("**/b/c", "b/c/b"),
        ("[!a-c]1", "b1"),
        ("a/b", "a"),
        ("a", "a/b"),
        ("a\\*", "ab"),
    ],
)
def test_pattern_does_not_fit(text: str, path: str) -> None:
    assert not fits(text, path)


def test_pattern_without_an_anchor_fits_any_end_of_a_path() -> None:
    assert fits("a*", "x/y/ab", is_anchored=False)
    assert not fits("a*", "ab/y", is_anchored=False)


def test_many_stars_take_no_longer_than_few() -> None:
    names = "*a" * 40 + "*b"
    assert not fits(names, "a" * 250)
    assert fits(names, "a" * 249 + "b")
    folders = "**/a/" * 40 + "b"
    assert not fits(folders, "/".join("a" * 250))
    assert fits(folders, "/".join("a" * 249 + "b"))
