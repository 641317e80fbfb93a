"""What a mail says: the story of a run for somebody who is half asleep."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from epochal.records.figures import format_seconds, format_value
from epochal.records.mail.letter import Kind, Mail, identify, now
from epochal.records.metrics import TRAIN, is_epoch_mean
from epochal.records.secrets import redact, redact_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOG_LINES = 20
_OUTCOMES: Mapping[str, str] = {
    "out_of_disk": "out of disk",
    "gave_up": "given up",
    "stalled": "stands still",
    "sweep_done": "sweep done",
}
_MAX_SUBJECT = 160
_MAX_METRICS = 12
_MAX_FIGURES = 3
_ID_END = 4  # of a run's time-id, which is enough to name it in a command


@final
@dataclass(frozen=True, kw_only=True)
class Story:
    """What happened to a run, as far as it is known."""

    kind: Kind
    tag: str
    run: str = ""
    """Its folder, from the folder of all runs; empty if it has none."""

    folder: str = ""
    """The same as anybody on this machine finds it."""

    attempt: int = 0
    what: str = ""
    """What tells this from other mails of the attempt; all endings are one thing."""

    sender: Mapping[str, Any] = field(default_factory=dict)
    """``project``, ``variant``, ``runner``, ``started``, ``host`` and ``desc``."""

    seconds: float | None = None
    step: int | None = None
    epoch: int | None = None
    monitor: str = ""
    best: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    why: str = ""
    """A few words: the error, why it was given up, where it stands still."""

    traceback: str = ""
    log: str = ""
    """The last lines of its text log."""


def compose(story: Story) -> Mail:
    """The mail that tells a story."""
    facts = {
        "seconds": story.seconds,
        "step": story.step,
        "epoch": story.epoch,
        "monitor": story.monitor,
        "best": story.best,
        "metrics": dict(story.metrics),
        "error": story.why,
        "attempt": story.attempt,
    }
    sender = {"tag": story.tag, "folder": story.folder, **story.sender}
    # What the run wrote itself has lost its secrets, but not what it tells from memory.
    facts, sender = redact_tree(facts), redact_tree(sender)
    time = now()
    return Mail(
        # Without a folder nothing else tells two runs apart.
        id=identify(story.run or time, story.attempt, story.what),
        kind=story.kind,
        subject=redact(_subject(story)),
        text=redact("\n".join(_lines(story)) + "\n"),
        time=time,
        run=story.run,
        sender=sender,
        facts=facts,
    )


def name_of(story: Story) -> str:
    """What a run is called in a line: its tag, variant, and the end of its id."""
    variant = story.sender.get("variant")
    run_id = story.run.rpartition("/")[2]
    words = [f"{story.tag}/{variant}" if variant else story.tag, run_id[-_ID_END:]]
    return " ".join(word for word in words if word)


def _subject(story: Story) -> str:
    figures = [
        name_of(story),
        "" if story.seconds is None else format_seconds(story.seconds),
        _best(story) or _figures(story),
        story.why.partition("\n")[0],
    ]
    outcome = _OUTCOMES.get(story.kind, story.kind)
    text = f"{outcome}: {', '.join(figure for figure in figures if figure)}"
    text = " ".join(text.split())  # a header has one line
    return text if len(text) <= _MAX_SUBJECT else f"{text[: _MAX_SUBJECT - 1]}…"


def _best(story: Story) -> str:
    name = f"{story.monitor} " if story.monitor else ""
    return "" if story.best is None else f"best {name}{format_value(float(story.best))}"


def _figures(story: Story) -> str:
    """What a run came to that had nothing to choose the best of, such as a test."""
    if story.kind != "finished":
        return ""
    found = [item for item in story.metrics.items() if not item[0].startswith(TRAIN)]
    return ", ".join(f"{name} {format_value(value)}" for name, value in found[:_MAX_FIGURES])


def _lines(story: Story) -> Iterator[str]:
    run_id = story.run.rpartition("/")[2]
    yield f"{name_of(story)}: {_OUTCOMES.get(story.kind, story.kind)}"
    yield from (f"  {line}" for line in str(story.sender.get("desc") or "").splitlines())
    yield ""
    length = [
        "" if story.epoch is None else f"epoch {story.epoch}",
        "" if story.step is None else f"step {story.step}",
        "" if story.seconds is None else format_seconds(story.seconds),
    ]
    yield f"  length   {', '.join(one for one in length if one)}"
    if story.best is not None:
        yield f"  best     {_best(story).removeprefix('best ')}"
    shown = [item for item in story.metrics.items() if not is_epoch_mean(item[0])]
    if shown:
        figures = (f"{name} {format_value(value)}" for name, value in shown[:_MAX_METRICS])
        yield f"  results  {'  '.join(figures)}"
    for index, line in enumerate(story.why.splitlines()):
        yield f"  {'why' if not index else '':<9}{line}"
    yield f"  machine  {story.sender.get('host') or platform.node()}"
    if run_id:
        yield f"  folder   {story.folder}"
        yield f"  next     epochal show {run_id}"
        if story.step and story.kind in ("lost", "failed", "gave_up", "out_of_disk"):
            yield f"           epochal resume {run_id}"
    for title, text in (("traceback", story.traceback), ("last log lines", story.log)):
        if text.strip():
            yield f"\n{title}:\n\n{text.rstrip()}"
