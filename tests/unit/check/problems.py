"""What is wrong with a config, in a form that tests compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from epochal.check import CheckReport


def problems_of(report: CheckReport) -> list[tuple[str, str, str]]:
    """Key, description and hint of each problem."""
    return [(problem.key, problem.what, problem.hint) for problem in report.problems]
