from __future__ import annotations

from pathlib import Path

import pytest

from epochal.config.source_file import SourceText, display_name, read_source
from epochal.errors import ConfigError, MissingFileError


def test_a_place_has_line_column_text_and_width() -> None:
    for text in ("a: 1\nkey: value\n", "a: 1\r\nkey: value\r\n"):
        place = SourceText("x.yaml", text).place(10, 15)
        assert (place.name, place.line, place.column) == ("x.yaml", 2, 6)
        assert (place.text, place.width) == ("key: value", 5)
    assert SourceText("x", "abc\ndef").place(1, 6).width == 2  # in its first line only
    assert SourceText("x", "\ta").place(1).text == " a"
    assert [SourceText("x", "a").line(number) for number in (0, 1, 2)] == ["", "a", ""]


def test_a_long_line_is_cut_and_hidden_if_the_caret_would_be_far_right() -> None:
    text = SourceText("x", "a" * 10_000)
    assert len(text.place(3).text) == 200
    assert text.place(5_000).text == ""
    assert text.place(5_000).column == 5_001


def test_offsets_and_places_are_inverse() -> None:
    text = SourceText("x", "one\ntwo\n\nfour")
    for offset in range(len(text.text)):
        place = text.place(offset)
        assert text.offset(place.line, place.column) == offset


def test_names_are_relative_below_the_current_folder_and_absolute_elsewhere(write) -> None:
    write("sub/a.yaml", "a: 1")
    assert display_name(Path("sub/a.yaml").resolve()) == str(Path("sub/a.yaml"))
    assert display_name(Path("sub/../sub/a.yaml")) == str(Path("sub/a.yaml"))
    assert display_name(Path("../x.yaml")) == str(Path.cwd().parent / "x.yaml")


def test_the_text_is_kept_as_written_without_a_byte_order_mark(write) -> None:
    assert read_source(write("a.yaml", b"\xef\xbb\xbfa: 1")).text == "a: 1"
    assert read_source(write("a.yaml", "a: 1\r\n# ä\r\n")).text == "a: 1\r\n# ä\r\n"


def test_a_missing_file_suggests_the_nearest_name(write) -> None:
    write("digits.yaml", "a: 1")
    write("base.toml", "a = 1")
    with pytest.raises(
        MissingFileError, match=r"digit\.yaml: no such file\n  did you mean 'digits"
    ):
        read_source(Path("digit.yaml"))
    with pytest.raises(MissingFileError, match=r"there are: base\.toml, digits\.yaml"):
        read_source(Path("zzz.yaml"))


def test_a_missing_folder_is_named(write) -> None:
    write("a.yaml", "a: 1")
    with pytest.raises(MissingFileError, match="there is no folder configs"):
        read_source(Path("configs/a.yaml"))
    Path("configs").mkdir()
    with pytest.raises(MissingFileError, match="no config file in that folder"):
        read_source(Path("configs/a.yaml"))


def test_a_folder_is_no_config(write) -> None:
    write("configs/a.yaml", "a: 1")
    with pytest.raises(MissingFileError, match=r"is a folder[^\n]*\n  there are: a\.yaml"):
        read_source(Path("configs"))


def test_files_that_are_no_text_are_refused(write) -> None:
    for name, content, message in (
        ("a.txt", "a: 1", "unknown kind of config file '.txt'"),
        ("a.yaml", b"", "is empty"),
        ("a.yaml", b" \n\n", "is empty"),
        ("a.yaml", b"a: 1\nb: \xff\xfe1", "not UTF-8: byte 0xff in line 2"),
        ("a.yaml", "a: 1".encode("utf-16"), "written in UTF-16"),
        ("a.yaml", b"a: 1\nb\0: 1", "NUL byte in line 2"),
        ("a.yaml", b"a: " + b"x" * 1_000_000, "bigger than 1,000,000 bytes"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_source(write(name, content))


def test_a_file_that_is_no_regular_one_is_refused(write) -> None:
    write("a.yaml", "a: 1")
    Path("endless.yaml").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="not a regular file"):
        read_source(Path("endless.yaml"))
