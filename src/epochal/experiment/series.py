"""Runs one after the other, each with a result of its own, in the order of submission."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, overload

from typing_extensions import Unpack

from epochal.config import variant_names
from epochal.engine.execute import result_of_error
from epochal.errors import CheckpointError, EpochalError
from epochal.experiment.experiment import Experiment
from epochal.hooks.final_weights import FILE_NAME
from epochal.records import read_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from epochal.engine import RunResult
    from epochal.experiment.choices import Choices

Source = Any  # a path, a mapping, a namespace or an OmegaConf object


@overload
def run(
    source: list[Source], *, overrides: Sequence[str] = ..., **choices: Unpack[Choices]
) -> list[RunResult]: ...


@overload
def run(
    source: Source, *, overrides: Sequence[str] = ..., **choices: Unpack[Choices]
) -> RunResult: ...


def run(
    source: Source | list[Source],
    *,
    overrides: Sequence[str] = (),
    **choices: Unpack[Choices],
) -> RunResult | list[RunResult]:
    """Run what a config describes; a list of configs gives a list of results, in that order.

    Whatever happens is told by the result; with ``raise_errors=True`` an error is raised.

    Args:
        source: A file, a mapping, an argparse namespace or an OmegaConf object, or a list.
        overrides: Changes such as ``optim.lr=1e-3``.
        choices: What belongs to this run alone; see ``Choices``.
    """
    sources = source if isinstance(source, list) else [source]
    results = list(run_series(sources, overrides=overrides, **choices))
    is_single = not isinstance(source, list) and choices.get("variant") != "all"
    return results[0] if is_single else results


def run_series(
    sources: Sequence[Source], *, overrides: Sequence[str] = (), **choices: Unpack[Choices]
) -> Iterator[RunResult]:
    """The result of each run as it ends; one that fails does not stop the others."""
    for source in sources:
        for variant in _variants(source, choices):
            yield _run_one(source, overrides, choices | {"variant": variant})


def run_again(
    run_name: str,
    runner: str,
    runs_dir: Path,
    /,
    *,
    overrides: Sequence[str] = (),
    **choices: Unpack[Choices],
) -> RunResult:
    """Evaluate the weights that a finished run left, with the config it ran with.

    Raises:
        RecordError: There is no such run.
        CheckpointError: It left no weights.
    """
    record = read_run(run_name, runs_dir)
    weights = record.path / "checkpoints" / FILE_NAME
    if not weights.is_file():
        raise CheckpointError(
            f"{record.path}: has no weights to {runner}, it is {record.summary.status!r}\n"
            f"  weights are written as {weights.name} when a training ends"
        )
    expanded = next(iter(sorted((record.path / "config").glob("expanded.*"))), None)
    if expanded is None:
        raise CheckpointError(f"{record.path}: has no expanded config to {runner} it with")
    if choices.get("user_dir") is None:
        choices["user_dir"] = record.run.get("project_dir")
    changes = [f"runner={runner}", f"init_from={json.dumps(str(weights))}"]
    if record.expanded.get("record", {}).get("exact"):  # that folder is taken by the first run
        changes += ["record.exact=false", f"record.log_dir={json.dumps(str(record.path / runner))}"]
    return _run_one(expanded, [*changes, *overrides], choices)


def _run_one(source: Source, overrides: Sequence[str], choices: Choices) -> RunResult:
    try:
        return Experiment(source, overrides=overrides, choices=choices).run()
    except EpochalError as error:
        if choices.get("raise_errors"):
            raise
        return result_of_error(error)


def _variants(source: Source, choices: Choices) -> Sequence[str | None]:
    if choices.get("variant") != "all":
        return [choices.get("variant")]
    return variant_names(source) or [None]
