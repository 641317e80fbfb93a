"""The interface of trackers, hooks that copy the record to another tool; media of a run."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, final

import torch
from typing_extensions import override

from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.hook import LOG_PRIORITY, Hook
from epochal.engine.process.signals import PREEMPTED
from epochal.engine.tracking.mirror import Mirror, has_step_means
from epochal.records.folder.media import save_media as save
from epochal.records.folder.reader import read_folder
from epochal.records.secrets import redact, redact_tree

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from epochal.engine.interfaces.run import Run
    from epochal.engine.run.engine_run import EngineRun
    from epochal.engine.tracking.mirror import Sink
    from epochal.records.folder.media import Media

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 30.0
"""How long a run waits at its end for a tracker to finish."""

CLOSE_SECONDS_PREEMPTED = 3.0


@final
@dataclass(frozen=True)
class TrackedRun:
    """The facts about a run that a tracker shows."""

    dir: Path
    tag: str
    desc: str
    project: str

    def read_config(self) -> dict[str, Any]:
        """The expanded config of the record, without secrets."""
        public: dict[str, Any] = redact_tree(read_folder(self.dir).expanded)
        return public


class Tracker(Hook, ABC):
    """Copies the record of a run to another tool, from its main process only.

    The record stays the source of truth: an error of the tracker is reported once, and the run
    continues without it. Training points are copied with the period ``every``; all epoch means,
    evaluations and logged values are copied, and media if the tool can show them. Without a
    record it does nothing.

    Args:
        every: How often training points are written; 0 writes only those of epochs.
    """

    priority = LOG_PRIORITY - 10  # before the record writes the due point
    every = Every(100, "st")

    package: ClassVar[str] = ""
    """The package that must be installed; the extra of the same name installs it."""

    is_rewritten: ClassVar[bool] = False
    """Whether ``open`` always returns an empty sink."""

    _mirror: Mirror | None = None
    _run: Run | None = None
    _is_due = False
    _has_failed = False
    _has_left_out = False

    def __init__(
        self,
        *,
        every: Every = "100st",  # type: ignore[assignment]  # the schema shows what users type
    ) -> None:
        self.every = Every.parse(every)

    @abstractmethod
    def open(self, source: TrackedRun) -> Sink:
        """Open the sink; called in a background thread, so it may be slow."""

    @abstractmethod
    def describe(self, run_dir: Path | None) -> str:
        """The target of the points, in a few words."""

    @override
    def run_start(self, run: Run) -> None:
        if run.dir is None:  # as in all processes of a run but the main one
            return
        self._run = run
        if not is_installed(self.package):
            self._report(f"the package {self.package} is not installed", self._hint())
            return
        source = TrackedRun(
            run.dir,
            redact(run.tag),
            desc=redact(str(run.config.get("desc") or "")),
            project=str(run.config.get("project") or ""),
        )
        self._is_due = self._has_failed = self._has_left_out = False
        self._mirror = Mirror(
            run.dir,
            lambda: self.open(source),
            is_rewritten=self.is_rewritten,
            every=self.every,
        )
        run.trackers.append(self)
        if run.resume is None and run.facts.get("attempt"):
            self._mirror.start_attempt(run.facts["attempt"])

    @override
    def checkpoint_loaded(self, run: Run, path: Path) -> None:
        if self._mirror is not None:
            self._mirror.start_attempt(run.facts.get("attempt", 0))

    @override
    def step_end(self, run: Run) -> None:
        self._is_due = True

    @override
    def error(self, run: Run, error: BaseException) -> None:
        self._has_failed = True

    @override
    def teardown(self, run: Run) -> None:
        mirror, self._mirror = self._mirror, None
        if mirror is not None:
            self._close(run, mirror)
        self._run = None

    def take_points(self, points: Mapping[str, float], step: int) -> None:
        """Copy recorded points; training points only when due."""
        mirror = self._mirror
        if mirror is None or not self._report_failures(mirror):
            return
        if has_step_means(points):
            if not self._is_due:
                return
            self._is_due = False
        mirror.put(points, step)

    def take_media(self, media: Media) -> None:
        """Copy a file of the record; it is read later."""
        mirror = self._mirror
        if mirror is not None and self._report_failures(mirror):
            mirror.put_media(media)

    def _close(self, run: Run, mirror: Mirror) -> None:
        is_preempted = run.stop_status == PREEMPTED
        seconds = CLOSE_SECONDS_PREEMPTED if is_preempted else CLOSE_SECONDS
        is_done = mirror.close(
            seconds, has_failed=self._has_failed, on_wait=lambda: self._report_wait(seconds)
        )
        self._report_failures(mirror)
        if mirror.failure is not None:
            return
        if not is_done:
            self._report(f"did not finish in {seconds:.0f} s")
        elif mirror.lost:
            self._report(f"was too slow and dropped {mirror.lost} points or files")

    def _report_wait(self, seconds: float) -> None:
        name = type(self).__name__
        logger.info("%s: still writing; the run waits up to %.0f s", name, seconds)

    def _report_failures(self, mirror: Mirror) -> bool:
        """Report new errors of the mirror, once; returns whether it still copies."""
        if mirror.unshown is not None and not self._has_left_out:
            self._has_left_out = True
            self._report_unshown(*mirror.unshown)
        if mirror.failure is None:
            return True
        self._mirror = None
        self._report(_describe(mirror.failure))
        return False

    def _report_unshown(self, media: Media, error: Exception) -> None:
        name, what = type(self).__name__, redact(f"{media.title}: {_describe(error)}")
        logger.warning("%s: cannot show %s; the record still has it", name, what)
        if self._run is not None:
            self._run.writer.event("media_not_shown", tracker=name, message=what)

    def _report(self, what: str, hint: str = "") -> None:
        name, what = type(self).__name__, redact(what)
        logger.warning("%s: %s; the run continues, and its record is complete", name, what)
        if hint:
            logger.warning("  %s", hint)
        if self._run is not None:
            self._run.writer.event("tracker_failed", tracker=name, message=what)

    def _hint(self) -> str:
        return f"`pip install 'epochal[{self.package}]'`, or remove the hook"


def describe_trackers(run: Run) -> str:
    """The trackers of a run and their targets, as text; empty if there are none."""
    trackers = [hook for hook in run.hooks if isinstance(hook, Tracker)]
    return "; ".join(
        f"{type(one).__name__} {_how_often(one)}{one.describe(run.dir)}"
        + ("" if is_installed(one.package) else f" ({one.package} is not installed)")
        for one in trackers
    )


def is_installed(package: str) -> bool:
    """Whether a package is installed, without importing it."""
    return not package or find_spec(package) is not None


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _how_often(tracker: Tracker) -> str:
    every = tracker.every
    return "" if every.is_never else f"every {every}: "


def save_media(
    run: EngineRun,
    name: str,
    data: object,
    *,
    kind: str = "",
    suffix: str = "",
    step: int | None = None,
) -> Path | None:
    """Save media in the record; returns the file, or None if the run has no record.

    ``epochal.records.folder.media`` lists what ``data`` may be; tensors are treated as arrays.
    """
    if isinstance(data, torch.Tensor):
        data = data.detach().cpu().to_dense()
        data = (data.float() if data.is_floating_point() else data).numpy()
    step = run.step if step is None else step
    media = save(run.writer, name, data, step=step, kind=kind, suffix=suffix)
    if media is None:
        return None
    for tracker in run.trackers:
        tracker.take_media(media)
    return media.path
