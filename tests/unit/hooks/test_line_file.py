"""Tests of the sink that writes lines to a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.engine.tracking.mirror import Entry
from epochal.hooks.points_file import LineFileSink
from epochal.records.folder.media import Media

if TYPE_CHECKING:
    from pathlib import Path


def encode(entry: Entry) -> bytes:
    return f"{entry.step} {dict(entry.values)}\n".encode()


def test_the_file_is_overwritten_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "points.txt"
    path.write_text("of another attempt, and torn")
    sink = LineFileSink(path, encode, head=b"all:\n")
    assert path.read_text() == "all:\n"
    sink.write([Entry(1, 0.0, {"a": 1.0}), Entry(2, 0.0, {"a": 0.5})])
    sink.write([Entry(3, 0.0, {"b": 2.0})])
    sink.close(has_failed=False)
    assert path.read_text() == "all:\n1 {'a': 1.0}\n2 {'a': 0.5}\n3 {'b': 2.0}\n"


def test_the_file_has_no_earlier_attempts_and_no_media(tmp_path: Path) -> None:
    sink = LineFileSink(tmp_path / "points.txt", encode)
    media = Media("text", "note", 1, tmp_path / "note.txt")
    sink.show(media)
    sink.close(has_failed=False)
    assert (sink.read_known(["a"]), sink.has(media)) == ({}, False)
    assert (tmp_path / "points.txt").read_bytes() == b""
