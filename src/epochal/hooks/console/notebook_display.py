"""The progress of a run in a notebook: one output that is redrawn periodically."""

from __future__ import annotations

from threading import Event, Thread
from typing import TYPE_CHECKING, Any, final

from epochal.hooks.console.progress_display import (
    DRAWS_PER_SECOND,
    GAP,
    format_clock,
    format_progress,
)
from epochal.records.secrets import redact
from epochal.text.formatting import format_rate
from epochal.text.html_output import link_to_run, to_html

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from epochal.engine.interfaces.run import Run
    from epochal.hooks.console.progress_display import RunProgress

_STYLE = "font:13px/1.6 var(--jp-code-font-family,monospace);white-space:pre-wrap"
_BAR = "width:14em;vertical-align:middle"
_DIM = "opacity:.65"


@final
class NotebookDisplay:
    """Bars for the epoch and an evaluation, and the latest results, in one output of a cell.

    Steps do not update it: a thread reads the counters of the run and draws.
    """

    def __init__(self, run: Run, progress: RunProgress) -> None:
        self.numbers: dict[str, str] = {}
        """The latest losses, metrics and learning rate; replaced by the hook."""

        self._run = run
        self._title = redact(run.tag or "untitled run")
        self._progress = progress
        self._output: Any = None  # a display handle of IPython, which has no types
        self._results: dict[str, str] = {}
        self._is_training = False
        self._has_ended = Event()
        self._thread = Thread(target=self._draw_until_end, name="epochal-notebook", daemon=True)

    def show(self, split: str) -> None:
        """Start drawing if that has not happened yet."""
        self._is_training = self._is_training or split == "train"
        if self._thread.ident is None:
            self._draw()
            self._thread.start()

    def show_result(self, split: str, numbers: Mapping[str, str], duration: str, best: str) -> None:
        """Replace the result of a split; ``best`` says what the best one was."""
        line = GAP.join([f"{split:<5}", *_pairs(numbers), _dim(duration), to_html(best)])
        self._results = {**self._results, split: line}  # the thread may be reading the old ones

    def stop(self) -> None:
        """Draw the last state, which stays."""
        self._has_ended.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._draw()

    def _draw_until_end(self) -> None:
        while not self._has_ended.wait(1 / DRAWS_PER_SECOND):
            self._draw()

    def _draw(self) -> None:
        content = "\n".join([*self._head(), *self._bars(), *self._results.values()])
        html = f'<div style="{_STYLE}">{content}</div>'
        bundle = {"text/html": html, "text/plain": f"progress of {self._title}"}
        if self._output is None:
            from IPython.display import display

            self._output = display(bundle, raw=True, display_id=True)
        else:
            self._output.update(bundle, raw=True)

    def _head(self) -> Iterator[str]:
        run = self._run
        folder = [] if run.dir is None else [link_to_run(run.dir)]
        facts = GAP.join([to_html(str(run.device)), *folder])
        yield f"<b>{to_html(self._title)}</b>{GAP}{_dim(facts)}"

    def _bars(self) -> Iterator[str]:
        run, progress = self._run, self._progress
        if self._is_training:
            progress.update_speed()
            clocks = [f"{format_rate(rate)} {unit}/s" for unit, rate in progress.rates]
            clocks.append(format_clock(progress.elapsed_seconds))
            if not self._has_ended.is_set():
                clocks.append(f"left {format_clock(progress.eta_seconds)}")
            head = "Step" if progress.is_by_steps else f"Epoch {progress.epoch_count}"
            bar = _bar(head, *progress.share, progress.step_count)
            yield GAP.join([bar, *_pairs(self.numbers), _dim(GAP.join(clocks))])
        if run.split != "train" and not self._has_ended.is_set():
            name = "/".join(part for part in (run.split, run.loader_name) if part)
            yield _bar(name, *progress.evaluated, format_progress(*progress.evaluated))


def _bar(head: str, done: float, total: float | None, count: str) -> str:
    extent = "" if total is None else f' value="{done}" max="{total}"'
    bar = f'<progress{extent} style="{_BAR}"></progress>'
    return GAP.join([f"<b>{to_html(head)}</b>", bar, count])


def _pairs(texts: Mapping[str, str]) -> Iterator[str]:
    return (f"{_dim(to_html(name))} {to_html(text)}" for name, text in texts.items() if text)


def _dim(content: str) -> str:
    return f'<span style="{_DIM}">{content}</span>'
