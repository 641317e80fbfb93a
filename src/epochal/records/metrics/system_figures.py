"""Reads the use of CPU, memory, disk and GPUs that a run recorded over time.

``system.jsonl`` holds one sample per line: ``{"time": ..., "step": ..., "system/cpu": ...}``. These
figures differ from run to run and are not metrics: nothing compares, monitors or sorts by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.errors import RecordError
from epochal.records.layout.coerce import as_finite_numbers
from epochal.records.metrics.points import explain_unknown_metric, read_json_lines

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

SYSTEM_FILE = "system.jsonl"
SYSTEM_PREFIX = "system/"


@final
@dataclass(frozen=True, slots=True)
class SystemFigures:
    """The samples of a run, in the order of time."""

    samples: list[dict[str, float]]
    """Figures by name, with ``time`` (seconds since 1970) and ``step``; some may lack figures."""

    @property
    def names(self) -> list[str]:
        """The names of all figures, sorted."""
        found = {name for sample in self.samples for name in sample}
        return sorted(name for name in found if name.startswith(SYSTEM_PREFIX))

    def series(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The seconds since the first sample, and the values of one figure."""
        import numpy as np

        if name not in self.names:
            raise RecordError(explain_unknown_metric(name, self.names))
        found = [(sample["time"], sample[name]) for sample in self.samples if name in sample]
        seconds, values = np.array(found, np.float64).T
        return seconds - self.samples[0]["time"], values

    def summarise(self) -> dict[str, tuple[float, float]]:
        """The mean and the highest value of each figure, by name."""
        values = {
            name: [sample[name] for sample in self.samples if name in sample] for name in self.names
        }
        return {name: (sum(own) / len(own), max(own)) for name, own in values.items()}


def read_system(folder: Path) -> SystemFigures:
    """The system figures of the run in ``folder``, without damaged lines."""
    lines = map(as_finite_numbers, read_json_lines(folder / SYSTEM_FILE)[0])
    return SystemFigures([line for line in lines if "time" in line])
