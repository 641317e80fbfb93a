"""Finds how many samples of an experiment fit into memory at once; nothing is kept or recorded."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, final

from typing_extensions import Unpack

from epochal.check import SECTIONS
from epochal.engine.execute import execute
from epochal.engine.largest import Largest, Try
from epochal.errors import ConfigError, Problem, TaskError
from epochal.experiment.choices import check_choices
from epochal.experiment.conduct import plan_experiment
from epochal.experiment.experiment import Experiment
from epochal.experiment.profiling import leave_out_evaluations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.engine import RunResult
    from epochal.experiment.choices import Choices

LARGEST = 65_536
"""What is tried at most where neither a limit nor the data says anything."""

_EIGHTS = 16  # from here on the advice is a multiple of eight, which devices like


@final
@dataclass(frozen=True)
class FoundBatch:
    """What was found."""

    tag: str
    device: str
    tries: tuple[Try, ...]
    batch_size: int | None
    """Samples of a batch as the config has it, if the loader tells."""

    limit: int
    """The most samples that were to be tried."""

    result: RunResult
    """How the search ended."""

    @property
    def samples(self) -> int:
        """The most samples that fit; 0 if not even one does."""
        return max((one.samples for one in self.tries if one.fits), default=0)

    @property
    def advice(self) -> int:
        """What to write: the same, a little less where it is many."""
        return self.samples - self.samples % 8 if self.samples >= _EIGHTS else self.samples

    @property
    def bytes_per_sample(self) -> float | None:
        """What each further sample takes on the device, if that was counted."""
        peaks = sorted({one.samples: one.peak for one in self.tries if one.peak}.items())
        if len(peaks) < 2:
            return None
        (few, least), (many, most) = peaks[0], peaks[-1]
        return (most - least) / (many - few)

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        names = ("tag", "device", "batch_size", "limit", "samples", "advice", "bytes_per_sample")
        return {name: getattr(self, name) for name in names} | {
            "tries": [asdict(one) for one in self.tries]
        }


def find_batch(
    source: object,
    *,
    limit: int | None = None,
    overrides: Sequence[str] = (),
    **choices: Unpack[Choices],
) -> FoundBatch:
    """The most samples that fit into memory at once, tried with steps on real data.

    The model and all else is afterwards as before.

    Args:
        source: A config as ``ep.run`` takes it, or an ``Experiment``.
        limit: The most samples to try; by default as many as the training data has.
        overrides: Changes such as ``optim.lr=1e-3``.
        choices: What belongs to this search alone; see ``Choices``.

    Raises:
        ConfigError: The config has mistakes, or the device has no memory of its own to fill.
        TaskError: The config does not train.
    """
    check_choices(choices, sections=SECTIONS)
    if limit is not None and limit < 1:
        what = f"must be at least 1, got {limit}"
        raise ConfigError(Problem("--limit", what, hint="write --limit 1024"))
    experiment = source
    if not isinstance(experiment, Experiment):
        experiment = Experiment(source, overrides=overrides, choices=choices)
    run, runner, _ = plan_experiment(experiment, experiment.loaded, is_quiet=True)
    if run.optimizer is None and not runner.needs_optimizer:
        raise TaskError(
            "runner: takes no steps, so there is no batch to find\n"
            "  name a config that trains, or set runner=train"
        )
    if run.device.type == "cpu" and limit is None:
        what = "needs a device with memory of its own: a CPU would fill all of the machine's"
        raise ConfigError(Problem("find-batch", what, hint="use --device cuda, or --limit SAMPLES"))
    leave_out_evaluations(run)
    loader = run.feed.loader
    most = limit or run.feed.samples_per_epoch or LARGEST
    size = getattr(loader, "batch_size", None)
    tag, device = run.tag, str(run.device)
    result = execute(run, Largest(runner, limit=most), raise_errors=True)
    return FoundBatch(tag, device, tuple(result.value), size, most, result)
