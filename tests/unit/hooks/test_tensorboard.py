"""TensorBoard: event files with each point of the record once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from epochal.engine.interfaces.hook import Hook
from epochal.engine.tracking.mirror import Entry
from epochal.engine.tracking.tracker import TrackedRun
from epochal.hooks.tensorboard import MAX_ROWS, LazySummaryWriter, TensorBoard, to_markdown
from epochal.records.folder.media import Media, read_media
from epochal.testing import execute_run, tiny_run
from tracked import Series, carry_out_tracked, events, only, recorded

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.engine.run.engine_run import EngineRun


WAV = b"RIFF\x24\0\0\0WAVEfmt "


def narrow(series: Series) -> Series:
    """Values as TensorBoard stores them."""
    return {
        name: {step: float(np.float32(value)) for step, value in points.items()}
        for name, points in series.items()
    }


def test_event_files_equal_the_record(tmp_path: Path) -> None:
    folder, result = carry_out_tracked(tmp_path, TensorBoard(every="4st"))
    assert result.ok, result.message
    shown, record = events(folder / "tensorboard"), recorded(folder)
    assert set(shown) == set(record)
    rare = ("train/loss", "train/acc", "lr")
    assert only(shown, *rare) == narrow(only(record, *rare, steps={4, 8, 12}))
    often = set(record) - set(rare)
    assert only(shown, *often) == narrow(only(record, *often))


def test_opening_again_replaces_the_event_files(tmp_path: Path) -> None:
    source = TrackedRun(tmp_path, "tiny", "", "")
    for value in (1.0, 2.0):
        sink = TensorBoard().open(source)
        sink.write([Entry(5, 0.0, {"a": value})])
        sink.close(has_failed=False)
    assert events(tmp_path / "tensorboard") == {"a": {5: 2.0}}


def test_nonfinite_values_are_shown(tmp_path: Path) -> None:
    sink = TensorBoard().open(TrackedRun(tmp_path, "tiny", "", ""))
    sink.write([Entry(5, 0.0, {"a": float("inf")}), Entry(6, 0.0, {"a": float("nan")})])
    sink.close(has_failed=False)
    found = events(tmp_path / "tensorboard")["a"]
    assert found[5] == float("inf")
    assert np.isnan(found[6])


def accumulated(folder: Path) -> Any:
    """What TensorBoard itself reads."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shown = EventAccumulator(str(folder), size_guidance={"images": 0, "audio": 0, "tensors": 0})
    shown.Reload()
    return shown


def shown_text(folder: Path, title: str) -> str:
    (event,) = accumulated(folder).Tensors(title)
    return str(event.tensor_proto.string_val[0], "utf-8")


class Shows(Hook):
    """Saves an image, a sound and a text with each epoch."""

    def epoch_end(self, run: EngineRun, split: str, metrics: dict[str, float]) -> None:
        if split == "train":
            run.save_media("samples/grid", torch.full((3, 4, 5), run.epoch_number / 4))
            run.save_media("speech", WAV, kind="audio")
            run.save_media("notes", f"epoch {run.epoch_number}")


def test_images_sounds_and_texts_are_shown_at_their_steps(tmp_path: Path) -> None:
    folder, result = carry_out_tracked(tmp_path, TensorBoard(), Shows())
    assert result.ok, result.message
    shown = accumulated(folder / "tensorboard")
    images, sounds = shown.Images("samples/grid/image"), shown.Tensors("speech/audio")
    kept = {one.step: one.path.read_bytes() for one in read_media(folder) if one.kind == "image"}
    assert {one.step: one.encoded_image_string for one in images} == kept
    assert [(one.width, one.height) for one in images] == [(5, 4)] * 2
    assert [(one.step, list(one.tensor_proto.string_val)) for one in sounds] == [
        (6, [WAV, b""]),
        (12, [WAV, b""]),
    ]
    assert shown.PluginTagToContent("audio")
    texts = shown.Tensors("notes/text")
    assert [(one.step, one.tensor_proto.string_val[0]) for one in texts] == [
        (6, b"epoch 1"),
        (12, b"epoch 2"),
    ]
    assert shown.PluginTagToContent("text")


@pytest.mark.parametrize(
    ("suffix", "content", "markdown"),
    [
        ("md", "# Title\ntext", "# Title\ntext"),
        ("txt", "one\ntwo", "one  \ntwo"),
        ("json", '{"a":\n1}', '    {"a":\n    1}'),
        ("csv", 'name,a|b\n"x\ny",2\n', "| name | a\\|b |\n| --- | --- |\n| x y | 2 |"),
        ("tsv", "a\tb\n", "| a | b |\n| --- | --- |"),
        ("csv", "", ""),
    ],
)
def test_texts_and_tables_are_shown_as_markdown(
    tmp_path: Path, suffix: str, content: str, markdown: str
) -> None:
    sink = TensorBoard().open(TrackedRun(tmp_path, "tiny", "", ""))
    path = tmp_path / f"x.{suffix}"
    path.write_text(content)
    sink.show(Media("page", "x", 5, path))
    sink.close(has_failed=False)
    assert shown_text(tmp_path / "tensorboard", "x/page") == markdown


def test_only_the_first_rows_of_a_long_table_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a\n" + "1\n" * 500)
    text = to_markdown(Media("table", "x", 5, path))
    assert text is not None
    assert text.count("\n") == 1 + MAX_ROWS


def test_unsupported_media_are_left_out(tmp_path: Path) -> None:
    sink = TensorBoard().open(TrackedRun(tmp_path, "tiny", "", ""))
    for suffix in ("mp4", "svg", "npy", "parquet", "mp3"):
        path = tmp_path / f"x.{suffix}"
        path.write_bytes(b"\0")
        sink.show(Media("file", "x", 5, path))
    sink.close(has_failed=False)
    found = accumulated(tmp_path / "tensorboard").Tags()
    assert not found["images"] + found["audio"] + found["tensors"]


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n"])
def test_a_file_that_is_not_an_image_is_an_error(tmp_path: Path, content: bytes) -> None:
    sink = TensorBoard().open(TrackedRun(tmp_path, "tiny", "", ""))
    path = tmp_path / "x.png"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="the file is not a PNG image"):
        sink.show(Media("image", "x", 5, path))
    sink.close(has_failed=False)


class Draws(Hook):
    """Adds something of its own."""

    def step_end(self, run: EngineRun) -> None:
        run.store.get("summary_writer").add_scalar("own", run.step / 4, run.step)


def test_users_get_a_summary_writer_from_the_store(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    folder, result = carry_out_tracked(tmp_path, TensorBoard(), Draws())
    assert result.ok, result.message
    assert set(threading.enumerate()) <= before, "the writer was not closed"
    own = events(folder / "tensorboard" / "added")
    assert own == {"own": {step: step / 4 for step in range(1, 13)}}
    assert "own" not in events(folder / "tensorboard")


def test_the_summary_writer_writes_nothing_without_a_record() -> None:
    execute_run(tiny_run(TensorBoard(), Draws()))


def test_the_summary_writer_makes_no_files_before_its_first_use(tmp_path: Path) -> None:
    writer = LazySummaryWriter(tmp_path / "added")
    assert not hasattr(writer, "state_dict")
    writer.close()
    assert not (tmp_path / "added").exists()


def test_repeated_steps_replace_earlier_entries(tmp_path: Path) -> None:
    for purge_step, value in ((None, 1.0), (2, 2.0)):
        writer = LazySummaryWriter(tmp_path, purge_step=purge_step)
        for step in range(purge_step or 1, 4):
            writer.add_scalar("own", value, step)
        writer.close()
    assert events(tmp_path) == {"own": {1: 1.0, 2: 2.0, 3: 2.0}}


@pytest.mark.parametrize(
    ("folder", "text"),
    [(None, "`tensorboard --logdir tensorboard`"), ("x", "`tensorboard --logdir x/tensorboard`")],
)
def test_the_description_has_the_command(folder: str | None, text: str, tmp_path: Path) -> None:
    from pathlib import Path

    assert TensorBoard().describe(None if folder is None else Path(folder)) == text
