"""Writes the report of a sweep into its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.records.folder import redacted
from epochal.sweep.report.figures import prepare_figures
from epochal.sweep.report.html_report import render_html

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from epochal.sweep.settings import SweepSettings
    from epochal.sweep.sweep_folder import SweepFolder
    from epochal.sweep.trials import Trial


def write_report(
    folder: SweepFolder, settings: SweepSettings, trials: Collection[Trial]
) -> Iterator[Path | str]:
    """Write ``report.html`` and ``report.png``; returns their paths, or why one is missing."""
    figures = prepare_figures(folder.id, settings, trials)
    page = folder.path / "report.html"
    redacted.write_text(page, render_html(figures))
    yield page
    try:
        from epochal.sweep.report.png_report import save_png

        save_png(figures, folder.path / "report.png")
    except ImportError:
        yield "report.png needs matplotlib: pip install 'epochal[plot]'"
    else:
        yield folder.path / "report.png"
