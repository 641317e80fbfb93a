"""Tests of epochal.records.folder.media."""

from __future__ import annotations

import json
import math
import struct
import time
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from epochal.errors import RecordError
from epochal.records import NullWriter, RunFolder, RunWriter
from epochal.records.folder.media import encode_png, read_media, save_media

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def writer(tmp_path: Path) -> RunWriter:
    return RunWriter(RunFolder(tmp_path))


def test_tables_are_read_row_by_row(writer: RunWriter) -> None:
    for suffix, separator in [("csv", ","), ("tsv", "\t")]:
        lines = [separator.join(row) for row in (["name", "loss"], ['"a\nb"', "1"], ["c"])]
        media = save_media(
            writer, "scores", "\n".join(lines).encode() + b"\xff", step=1, suffix=suffix
        )
        assert media is not None
        assert list(media.iter_rows()) == [["name", "loss"], ["a\nb", "1"], ["c\ufffd"]]
        assert media.read_text().endswith("c\ufffd")


def decode_png(data: bytes) -> np.ndarray:
    """The pixels of a PNG whose lines are not filtered."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, position = {}, 8
    while position < len(data):
        (size,) = struct.unpack_from(">I", data, position)
        kind, body = data[position + 4 : position + 8], data[position + 8 : position + 8 + size]
        assert struct.unpack_from(">I", data, position + 8 + size)[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        position += 12 + size
    width, height, depth, color = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert depth == 8
    channels = {0: 1, 4: 2, 2: 3, 6: 4}[color]
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    assert (lines[:, 0] == 0).all()
    return lines[:, 1:].reshape(height, width, channels)


@settings(max_examples=30, deadline=None)
@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4))))
def test_png_holds_the_pixels(pixels: np.ndarray) -> None:
    assert (decode_png(encode_png(pixels)) == pixels).all()


def test_matplotlib_reads_the_png(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    (tmp_path / "a.png").write_bytes(encode_png(pixels))
    assert (np.round(image.imread(tmp_path / "a.png") * 255) == pixels).all()


def test_arrays_of_every_usual_layout_are_images(writer: RunWriter) -> None:
    for data, pixel in [
        (np.full((8, 9), 7, np.uint8), [7]),
        (np.full((8, 9, 3), 0.5), [128, 128, 128]),
        (np.full((3, 8, 9), 1.0, np.float32), [255, 255, 255]),
        (np.full((8, 9), 7.5), [255]),
        (np.full((8, 9), math.nan), [0]),
        (np.ones((8, 9), bool), [255]),
        (np.full((8, 9, 4), 300), [255, 255, 255, 255]),
        ([[0.0, 1.0]], [0]),
    ]:
        media = save_media(writer, "grid", data, step=12)
        assert media is not None
        assert media.path == writer.path / "media" / "image" / "grid-000012.png"
        assert decode_png(media.path.read_bytes())[0, 0].tolist() == pixel


class Figure:
    """Draws itself as those of matplotlib do."""

    def savefig(self, file: Any, *, format: str) -> None:
        file.write(f"drawn as {format}".encode())


class Picture:
    """Saves itself as those of Pillow do."""

    def save(self, file: Any, *, format: str) -> None:
        file.write(f"saved as {format}".encode())


def test_all_types_of_data_are_saved_by_kind(writer: RunWriter, tmp_path: Path) -> None:
    clip = tmp_path / "clip.MP4"
    clip.write_bytes(b"video")
    shown: list[tuple[object, dict[str, str], str, bytes]] = [
        (Figure(), {}, "image/x-000001.png", b"drawn as png"),
        (Picture(), {}, "image/x-000001.png", b"saved as png"),
        ("text of ü", {}, "text/x-000001.txt", "text of ü".encode()),
        (b"RIFF", {"suffix": ".wav"}, "audio/x-000001.wav", b"RIFF"),
        (b"RIFF", {"kind": "audio"}, "audio/x-000001.wav", b"RIFF"),
        (b"a,b", {"kind": "table"}, "table/x-000001.csv", b"a,b"),
        (clip, {}, "video/x-000001.mp4", b"video"),
        (b"\0", {"suffix": "npy"}, "file/x-000001.npy", b"\0"),
        ("a,b", {"kind": "table"}, "table/x-000001.csv", b"a,b"),
        (pd.DataFrame({"a": [1, 2]}), {}, "table/x-000001.csv", b"a\n1\n2\n"),
        (pd.DataFrame({"a": [1]}, index=["cat"]), {}, "table/x-000001.csv", b",a\ncat,1\n"),
        (pl.DataFrame({"a": [1, 2]}), {}, "table/x-000001.csv", b"a\n1\n2\n"),
        ("<b>", {"kind": "page", "suffix": "html"}, "page/x-000001.html", b"<b>"),
    ]
    for data, options, file, content in shown:
        media = save_media(writer, "x", data, step=1, **options)
        assert media is not None
        assert media.path == writer.path / "media" / file
        assert media.path.read_bytes() == content


def test_no_name_escapes_the_folder(writer: RunWriter) -> None:
    for name in ["../../out", "/etc/x", "a/../b", "..", "", "a\0b", "x" * 300]:
        media = save_media(writer, name, "text", step=1, kind="../up")
        assert media is not None
        assert media.path.resolve().is_relative_to(writer.path / "media")
        assert name in [one.name for one in read_media(writer.path)]


def test_similar_names_get_different_files(writer: RunWriter) -> None:
    names = ["a/b", "a_b", "a-b", "a b", "a:b", "/a/b", "a//b", "..", "_", "", "x" * 90, "x" * 91]
    for name in names:
        save_media(writer, name, f"this is {name}", step=1)
    found = {one.name: one.path for one in read_media(writer.path)}
    assert {name: path.read_text() for name, path in found.items()} == {
        name: f"this is {name}" for name in names
    }
    files = [found[name].relative_to(writer.path).as_posix() for name in ("a/b", "a_b", "a b")]
    assert files == [
        "media/text/a/b-000001.txt",
        "media/text/a_b-000001.txt",
        "media/text/a-b~806c5cd3-000001.txt",
    ]


def test_a_second_file_at_a_step_replaces_the_first(
    writer: RunWriter,
) -> None:
    for text in ("first", "second"):
        save_media(writer, "a b", text, step=1)
    (media,) = read_media(writer.path)
    assert media.path.read_text() == "second"
    assert len(list(media.path.parent.iterdir())) == 1


@pytest.mark.parametrize(
    "data",
    [
        np.zeros(3),
        np.zeros((2, 2, 2, 2)),
        np.zeros((0, 3)),
        np.zeros((2, 2), complex),
        np.array([["a", "b"]]),
        [[1], [2, 3]],
        object(),
        None,
        3.0,
    ],
)
def test_arrays_that_are_no_image_are_refused(writer: RunWriter, data: object) -> None:
    with pytest.raises(RecordError, match=r"grid: cannot be shown as an image: .* of shape"):
        save_media(writer, "grid", data, step=1)


def test_an_array_is_never_saved_as_another_kind_than_an_image(writer: RunWriter) -> None:
    for options in ({"kind": "audio"}, {"suffix": ".wav"}):
        with pytest.raises(RecordError, match=r"x: a ndarray cannot be saved as audio\n  give a "):
            save_media(writer, "x", np.zeros((1, 16000)), step=1, **options)
    assert not read_media(writer.path)


def test_bytes_of_unknown_kind_are_refused(writer: RunWriter, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"x: the kind of file is unknown\n  pass suffix="):
        save_media(writer, "x", b"?", step=1)
    with pytest.raises(RecordError, match=r"gone\.wav: cannot be read: no such file"):
        save_media(writer, "x", tmp_path / "gone.wav", step=1)


def test_nothing_is_saved_without_a_record() -> None:
    assert save_media(NullWriter(), "x", "text", step=1) is None


def test_files_are_listed_by_name_and_step(writer: RunWriter) -> None:
    for name, step in (("b", 2), ("a", 10), ("a", 1), ("a", 10)):
        save_media(writer, name, f"{name} {step}", step=step)
    found = [(one.kind, one.name, one.step) for one in read_media(writer.path)]
    assert found == [("text", "a", 1), ("text", "a", 10), ("text", "b", 2)]


def test_files_that_a_later_attempt_replaced_are_not_listed(tmp_path: Path) -> None:
    attempts = [{"attempt": 0}, {"attempt": 1, "origin": 0, "step": 4, "kept_points": 0}]
    (tmp_path / "run.json").write_text(json.dumps({"attempts": attempts}))
    for step in (2, 4, 6, 8):
        save_media(RunWriter(RunFolder(tmp_path)), "a", "first", step=step)
    save_media(RunWriter(RunFolder(tmp_path), attempt=1), "a", "again", step=6)
    found = [(one.step, one.path.read_text()) for one in read_media(tmp_path)]
    assert found == [(2, "first"), (4, "first"), (6, "again")]
    assert [one.step for one in read_media(tmp_path, before=1)] == [2, 4]


def test_files_have_a_time_and_a_title(writer: RunWriter) -> None:
    before = time.time()
    now = save_media(writer, "val/acc", b"a,b", step=1, kind="page", suffix=".CSV")
    (later,) = read_media(writer.path)
    assert now is not None
    assert (now.title, now.suffix) == (later.title, later.suffix) == ("val/acc/page", "csv")
    assert before <= now.time <= time.time()
    assert abs(later.time - now.time) < 1


def test_damaged_lines_and_missing_files_are_left_out(writer: RunWriter) -> None:
    save_media(writer, "a", "text", step=1)
    path = writer.path / "events.jsonl"
    path.write_text(json.dumps({**json.loads(path.read_text()), "time": "soon"}) + "\n")
    media = save_media(writer, "b", "text", step=1)
    assert media is not None
    media.path.unlink()
    writer.event("media", name="c")
    assert [(one.name, one.time) for one in read_media(writer.path)] == [("a", 0.0)]


def test_files_outside_of_the_record_are_not_listed(writer: RunWriter, tmp_path: Path) -> None:
    secret = tmp_path.parent / "secret.txt"
    secret.write_text("mine")
    (writer.path / "link.txt").symlink_to(secret)
    for file in (str(secret), f"../{secret.name}", "media/../../secret.txt", "link.txt"):
        writer.event("media", media="text", name="a", step=1, file=file)
        assert read_media(writer.path) == [], file


def test_text_is_saved_without_secrets(writer: RunWriter) -> None:
    media = save_media(writer, "log", "password: Zq7canary42", step=1)
    assert media is not None
    assert media.path.read_text() == "password: <redacted>"
