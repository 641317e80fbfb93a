"""Compares two or more runs, section by section, on first use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal.errors import RecordError
from epochal.records.compare.code import CodeComparison, compare_code
from epochal.records.compare.curves import TOLERANCE, CurveComparison, compare_curves
from epochal.records.compare.difference import (
    SectionComparison,
    compare_tables,
    data_table,
    environment_table,
    hardware_table,
    package_table,
    parameter_tables,
    seed_table,
)
from epochal.records.compare.metrics import MetricComparison, compare_metrics
from epochal.records.compare.replicate_groups import ReplicateGroup, find_replicates
from epochal.records.find import read_run
from epochal.records.index.refresh import ignore_progress
from epochal.registry.project_file import get_runs_dir
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from epochal.records.folder.reader import RunRecord
    from epochal.records.index.refresh import ProgressCallback

INPUT_SECTIONS = ("params", "seed", "code", "packages", "hardware", "environment", "data")
SECTIONS = (*INPUT_SECTIONS, "metrics", "curves")
"""The sections of a comparison, in the order of display."""


@final
@dataclass(frozen=True)
class Comparison:
    """The comparison of two or more runs; each section is computed on first use."""

    records: tuple[RunRecord, ...]
    root: Path = Path("runs")
    """The folder in which replicates are searched."""

    tolerance: float = TOLERANCE
    progress: ProgressCallback = ignore_progress
    """Receives messages during the search for replicates."""

    @cached_property
    def params(self) -> SectionComparison:
        """The parameters; a value equals an identical default."""
        return compare_tables(parameter_tables(self.records))

    @cached_property
    def seed(self) -> SectionComparison:
        """The seed."""
        return compare_tables([seed_table(record) for record in self.records])

    @cached_property
    def code(self) -> CodeComparison:
        """The files of the project, Epochal itself, and the state of git."""
        return compare_code(self.records)

    @cached_property
    def packages(self) -> SectionComparison:
        """Versions of packages and of Python."""
        return compare_tables([package_table(record) for record in self.records])

    @cached_property
    def hardware(self) -> SectionComparison:
        """Machine and device."""
        return compare_tables([hardware_table(record) for record in self.records])

    @cached_property
    def environment(self) -> SectionComparison:
        """The environment variables that may change what is computed."""
        return compare_tables([environment_table(record) for record in self.records])

    @cached_property
    def data(self) -> SectionComparison:
        """The fingerprint of the data."""
        return compare_tables([data_table(record) for record in self.records])

    @cached_property
    def metrics(self) -> list[MetricComparison]:
        """All metrics, including equal ones."""
        return compare_metrics(self.records)

    @cached_property
    def curves(self) -> list[CurveComparison]:
        """Where each later run diverges from the first."""
        first, *others = self.records
        return [compare_curves(first, other, tolerance=self.tolerance) for other in others]

    @cached_property
    def groups(self) -> tuple[ReplicateGroup | None, ...]:
        """The replicates of each run."""
        return tuple(find_replicates(record, self.root, self.progress) for record in self.records)

    @property
    def is_same_but_for_results(self) -> bool:
        """Whether all inputs are known and equal, but the curves differ."""
        is_known = self.code.source != "nothing" and not self.data.unknown
        return is_known and not self.differing(INPUT_SECTIONS) and bool(self.count("curves"))

    def count(self, section: str) -> int:
        """The number of differences in a section, without defaults that only some runs have.

        For curves, the number of runs that diverge from the first.
        """
        if section == "code":
            return len(self.code.files) + bool(self.code.epochal)
        if section == "metrics":
            return sum(not score.is_same for score in self.metrics)
        if section == "curves":
            return sum(one.bitwise is not None for one in self.curves)
        facts: SectionComparison = getattr(self, section)
        return sum(not one.is_minor for one in facts.differences)

    def differing(self, sections: Iterable[str] = SECTIONS) -> list[str]:
        """The sections with differences."""
        return [section for section in sections if self.count(section)]

    def to_json(self, sections: Iterable[str] = SECTIONS) -> dict[str, Any]:
        """The comparison as plain values."""
        chosen = list(sections)
        return {
            "runs": [_head(record) for record in self.records],
            "differing": self.differing(chosen),
            **{section: getattr(self, section) for section in chosen if section != "metrics"},
            **({"metrics": [one.to_json() for one in self.metrics]} if "metrics" in chosen else {}),
            **({"replicates": list(self.groups)} if "metrics" in chosen else {}),
        }

    @override
    def __str__(self) -> str:
        return describe_differences(self)


_NOUNS = {
    "params": "parameter",
    "seed": "seed",
    "packages": "package",
    "hardware": "fact of the machine",
    "environment": "variable",
    "data": "fact of the data",
    "metrics": "metric",
    "curves": "curve",
}


def describe_differences(found: Comparison, sections: Iterable[str] = SECTIONS) -> str:
    """One sentence about how the runs differ."""
    words, differing = [], found.differing(sections)
    for section in differing:
        if section == "seed":
            words.append("the seed")
        elif section == "code":
            num_files = len(found.code.files)
            words += [_several(num_files, "file")] if num_files else []
            words += ["Epochal itself"] if found.code.epochal else []
        elif section != "curves":
            words.append(_several(found.count(section), _NOUNS[section]))
    *most, last = words or ["nothing"]
    what = f"they differ in {', '.join(most)}{' and ' * bool(most)}{last}"
    if "curves" in differing:
        step = min(one.bitwise.step for one in found.curves if one.bitwise)
        return f"{what}; their curves diverge by step {step:,}"
    return what if words else "nothing differs"


def _several(count: int, noun: str) -> str:
    first, _, rest = noun.partition(" ")
    return f"{format_count(count, first)} {rest}".rstrip()


def diff(
    *runs: RunRecord | Path | str,
    root: Path | str | None = None,
    tolerance: float = TOLERANCE,
    progress: ProgressCallback = ignore_progress,
) -> Comparison:
    """The differences between two or more runs.

    Args:
        runs: Folders, ids, tags or parts of them, ``last``, or records.
        root: The folder of all runs; by default that of the project.
        tolerance: Relative difference up to which values of curves count as close.
        progress: Receives messages during the search for replicates.

    Raises:
        RecordError: A run does not exist, or there are fewer than two.
    """
    folder = get_runs_dir(root)
    found: list[RunRecord] = []
    for run in runs:
        found.append(read_run(run, folder) if isinstance(run, Path | str) else run)
    if len(found) < 2:
        raise RecordError(
            f"diff: needs two runs or more, got {len(found)}\n"
            "  name them by folder or id; `epochal runs` lists them"
        )
    if not tolerance >= 0:
        raise RecordError(
            f"tolerance: must not be negative, got {tolerance!r}\n  0.01 is one percent"
        )
    return Comparison(tuple(found), folder, tolerance, progress)


def _head(record: RunRecord) -> dict[str, Any]:
    summary = record.summary
    names = ("id", "project", "tag", "status", "step", "epoch", "started", "ended")
    return {"path": str(record.path), **{name: getattr(summary, name) for name in names}}
