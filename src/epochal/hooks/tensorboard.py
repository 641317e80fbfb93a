"""TensorBoard: a run's points as event files in its folder, for TensorBoard to show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal import durable
from epochal.engine.every import Every
from epochal.engine.mirror import Entry, Sink, importing
from epochal.engine.tracker import Source, Tracker, is_first_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from epochal.engine.run import Run

FOLDER = "tensorboard"
STORED = "summary_writer"
"""The name in ``run.store`` of a writer for what users add by themselves."""


@final
class TensorBoard(Tracker):
    """Writes event files into ``tensorboard/`` of the run's folder.

    Every run has it if the package is installed, unless ``log.tensorboard`` is false. TensorBoard
    keeps numbers with seven digits. For pictures and whatever else its own writer can,
    ``run.store.get("summary_writer")`` gives a ``SummaryWriter`` of torch.

    Args:
        every: How often it takes points of training; 0 leaves out those between epochs.
    """

    package = "tensorboard"
    is_rewritten = True

    def __init__(
        self,
        *,
        every: Every = "100st",  # type: ignore[assignment]  # the schema shows what users type
    ) -> None:
        self.every = Every.parse(every)

    @override
    def setup(self, run: Run) -> None:
        folder = run.dir / FOLDER / "added" if run.dir is not None and is_first_rank() else None
        is_resumed = bool(run.facts.get("attempt"))
        additions = Additions(
            folder,
            purge_step=run.step if is_resumed else None,
            # It does not name what holds it: the two would keep the run alive.
            notice=lambda made: run.on("teardown", made.finish, priority=self.priority),
        )
        run.store.try_set(STORED, additions)

    @override
    def open(self, source: Source) -> Sink:
        return _Events(source.dir / FOLDER)

    @override
    def describe(self, run_dir: Path | None) -> str:
        folder = FOLDER if run_dir is None else run_dir / FOLDER
        return f"`tensorboard --logdir {folder}`"


@final
class _Events(Sink):
    """One event file, in place of those that were there."""

    def __init__(self, folder: Path) -> None:
        with importing():
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter

        for old in sorted(folder.glob("events.out.tfevents.*")):
            durable.remove_file(old)
        self._event, self._summary = Event, Summary
        self._writer = EventFileWriter(str(folder))

    @override
    def write(self, entries: list[Entry]) -> None:
        for entry in entries:
            values = [
                self._summary.Value(tag=name, simple_value=value)
                for name, value in entry.values.items()
            ]
            event = self._event(
                wall_time=entry.time, step=entry.step, summary=self._summary(value=values)
            )
            self._writer.add_event(event)
        self._writer.flush()

    @override
    def read_known(self, names: Iterable[str]) -> dict[str, int]:
        return {}

    @override
    def close(self, *, has_failed: bool) -> None:
        self._writer.close()


@final
class Additions:
    """Becomes a ``SummaryWriter`` of torch when something is added for the first time.

    Args:
        folder: Where it writes; not to where the run's own points are, which may be written anew.
            None writes nowhere.
        purge_step: From which step on TensorBoard forgets what was added before.
        notice: Told of this object when it has a writer, which has to be finished.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        purge_step: int | None = None,
        notice: Callable[[Additions], object] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._purge_step = purge_step
        self._notice = notice
        self._writer: Any = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the writer has
        if not name.startswith("add_") and name not in ("flush", "get_logdir"):
            raise AttributeError(f"{name}: a SummaryWriter of a run adds and flushes only")
        if self._folder is None:
            return _add_nothing
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            make: Any = SummaryWriter  # torch has no types here
            self._writer = make(str(self._folder), purge_step=self._purge_step)
            self._notice(self)
        return getattr(self._writer, name)

    def finish(self) -> None:
        """Close the writer, if there is one."""
        if self._writer is not None:
            self._writer.close()


def _add_nothing(*_: object, **__: object) -> None:
    """Stand in for every way to add something."""
