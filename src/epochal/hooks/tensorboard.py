"""TensorBoard: points and media of a run as event files in its folder."""

from __future__ import annotations

import struct
from itertools import islice
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal import durable
from epochal.engine.tracking.mirror import Entry, Sink, fork_safe_import
from epochal.engine.tracking.tracker import TrackedRun, Tracker
from epochal.records.folder.media import SEPARATORS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from epochal.engine.interfaces.run import Run
    from epochal.records.folder.media import Media

FOLDER = "tensorboard"
STORED = "summary_writer"
"""The key of the ``SummaryWriter`` in ``run.store``, for user code."""

MAX_ROWS = 100
"""Rows of a table that are shown as text."""

_IMAGES = ("png", "jpg", "jpeg", "gif", "bmp")  # formats that TensorBoard serves as images


@final
class TensorBoard(Tracker):
    """Writes event files into ``tensorboard/`` of the run's folder.

    Every run has it if the package is installed, unless ``log.tensorboard`` is false. TensorBoard
    stores numbers as float32. It shows images, sounds (WAV), texts and small tables that the run
    saves. For everything else, ``run.store.get("summary_writer")`` is a ``SummaryWriter`` of torch.
    """

    package = "tensorboard"
    is_rewritten = True

    @override
    def setup(self, run: Run) -> None:
        folder = run.dir / FOLDER / "added" if run.dir is not None else None
        is_resumed = bool(run.facts.get("attempt"))
        writer = LazySummaryWriter(
            folder,
            purge_step=run.step if is_resumed else None,
            # Not the variable `writer`: a reference cycle would keep the run alive.
            on_open=lambda opened: run.on("teardown", opened.close, priority=self.priority),
        )
        run.store.try_set(STORED, writer)

    @override
    def open(self, source: TrackedRun) -> Sink:
        return _EventFileSink(source.dir / FOLDER)

    @override
    def describe(self, run_dir: Path | None) -> str:
        folder = FOLDER if run_dir is None else run_dir / FOLDER
        return f"`tensorboard --logdir {folder}`"


@final
class _EventFileSink(Sink):
    """Writes one event file, which replaces existing ones."""

    def __init__(self, folder: Path) -> None:
        with fork_safe_import():
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.plugins.audio import metadata as audio
            from tensorboard.plugins.text import metadata as text
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
            from tensorboard.util.tensor_util import make_tensor_proto

        for old in sorted(folder.glob("events.out.tfevents.*")):
            durable.remove_file(old)
        self._event, self._summary = Event, Summary
        self._audio, self._text, self._to_tensor = audio, text, make_tensor_proto
        self._writer = EventFileWriter(str(folder))

    @override
    def write(self, entries: list[Entry]) -> None:
        for entry in entries:
            values = [
                self._summary.Value(tag=name, simple_value=value)
                for name, value in entry.values.items()
            ]
            self._add(entry.step, entry.time, values)
        self._writer.flush()

    @override
    def show(self, media: Media) -> None:
        if media.suffix in _IMAGES:
            data = media.path.read_bytes()
            width, height = _read_size(data) if media.suffix == "png" else (0, 0)
            image = self._summary.Image(width=width, height=height, encoded_image_string=data)
            value = self._summary.Value(tag=media.title, image=image)
        elif media.suffix == "wav":
            encoding = self._audio.Encoding.Value("WAV")
            metadata = self._audio.create_summary_metadata(media.title, "", encoding)
            sound = self._to_tensor([[media.path.read_bytes(), b""]])  # with an empty label
            value = self._summary.Value(tag=media.title, metadata=metadata, tensor=sound)
        elif (text := to_markdown(media)) is not None:
            metadata = self._text.create_summary_metadata(media.title, "")
            tensor = self._to_tensor(text.encode())
            value = self._summary.Value(tag=media.title, metadata=metadata, tensor=tensor)
        else:
            return
        self._add(media.step, media.time, [value])

    def _add(self, step: int, when: float, values: list[Any]) -> None:
        summary = self._summary(value=values)
        self._writer.add_event(self._event(wall_time=when, step=step, summary=summary))

    @override
    def close(self, *, has_failed: bool) -> None:
        self._writer.close()


def _read_size(png: bytes) -> tuple[int, int]:
    """Width and height of the image."""
    if not png.startswith(b"\x89PNG\r\n\x1a\n") or len(png) < 24:
        raise ValueError("the file is not a PNG image")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def to_markdown(media: Media) -> str | None:
    """A text or table as Markdown; None for other media."""
    if media.suffix == "md":
        return media.read_text()
    if media.suffix == "txt":
        return media.read_text().replace("\n", "  \n")  # Markdown would join the lines
    if media.suffix in ("json", "html"):
        return "\n".join(f"    {line}" for line in media.read_text().splitlines())
    if media.suffix in SEPARATORS:
        return _read_table(media)
    return None


def _read_table(media: Media) -> str:
    cells = [[_escape(cell) for cell in row] for row in islice(media.iter_rows(), MAX_ROWS + 1)]
    if not cells:
        return ""
    lines = [cells[0], ["---"] * len(cells[0]), *cells[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escape(cell: str) -> str:
    return " ".join(cell.split()).replace("|", "\\|")


@final
class LazySummaryWriter:
    """Opens a ``SummaryWriter`` of torch when something is added for the first time.

    Args:
        folder: Where it writes, apart from the run's own event files, which may be replaced.
            None writes nothing.
        purge_step: TensorBoard drops earlier entries from this step on.
        on_open: Called with this object when the writer is opened, to have it closed later.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        purge_step: int | None = None,
        on_open: Callable[[LazySummaryWriter], object] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._purge_step = purge_step
        self._on_open = on_open
        self._writer: Any = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - methods of the writer
        if not name.startswith("add_") and name not in ("flush", "get_logdir"):
            raise AttributeError(f"{name}: the SummaryWriter of a run can only add and flush")
        if self._folder is None:
            return lambda *_, **__: None
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            make: Any = SummaryWriter  # torch has no types here
            self._writer = make(str(self._folder), purge_step=self._purge_step)
            self._on_open(self)
        return getattr(self._writer, name)

    def close(self) -> None:
        """Close the writer, if there is one."""
        if self._writer is not None:
            self._writer.close()
