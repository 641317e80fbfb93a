"""MLflow: points, media and config of a run in an MLflow server or database."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal.engine.tracking.mirror import Entry, Sink, fork_safe_import
from epochal.engine.tracking.tracker import TrackedRun, Tracker
from epochal.records.folder.tracker_links import write_tracker_url
from epochal.records.layout.coerce import iter_leaves

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from epochal.engine.interfaces.every import Every
    from epochal.records.folder.media import Media

ORIGIN = "epochal.run"
"""The tag by which a resumed run finds its MLflow run."""

_MAX_METRICS, _MAX_PARAMS = 1000, 100  # MLflow's limits per batch
_MAX_PARAM_LENGTH = 500
_PASSWORD = re.compile(r"//[^/@]*@")
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")


@final
class MLflow(Tracker):
    """Shows a run in MLflow: points as metrics, media as artifacts, the config as parameters.

    MLflow cannot overwrite: for steps that a run repeats it keeps the first values.

    Args:
        uri: A server or a database, such as ``sqlite:///mlflow.db``; by default MLflow's own
            default, such as ``MLFLOW_TRACKING_URI``.
        experiment: By default the project of the run.
        every: How often training points are sent; 0 sends only those of epochs.
    """

    package = "mlflow"

    def __init__(
        self,
        *,
        uri: str | None = None,
        experiment: str | None = None,
        every: Every = "100st",  # type: ignore[assignment]  # the schema shows what users type
    ) -> None:
        self._uri, self._experiment = uri, experiment
        super().__init__(every=every)

    @override
    def open(self, source: TrackedRun) -> Sink:
        with fork_safe_import():
            import mlflow
            from mlflow.entities import Metric, Param

        for name in ("mlflow", "alembic"):  # they log every table that they create
            logging.getLogger(name).setLevel(logging.WARNING)
        client = mlflow.MlflowClient(self._uri)
        run_id, is_new = _find_run(client, self._experiment or source.project or "epochal", source)
        number = client.get_run(run_id).info.experiment_id
        address = f"{client.tracking_uri.rstrip('/')}/#/experiments/{number}/runs/{run_id}"
        write_tracker_url(source.dir, self.package, address)
        params = [
            Param(clean(key), str(value)[:_MAX_PARAM_LENGTH])
            for key, value in iter_leaves(source.read_config())
        ]
        for start in range(0, len(params) if is_new else 0, _MAX_PARAMS):
            client.log_batch(run_id, params=params[start : start + _MAX_PARAMS])
        return _MLflowSink(client, run_id, Metric, source.dir)

    @override
    def describe(self, run_dir: Path | None) -> str:
        return _PASSWORD.sub("//", self._uri) if self._uri else "MLflow"


@final
class _MLflowSink(Sink):
    """Writes the metrics and artifacts of one MLflow run."""

    def __init__(self, client: Any, run_id: str, make: Any, run_dir: Path) -> None:  # noqa: ANN401 - of an optional package
        self._client, self._run_id, self._make = client, run_id, make
        self._run_dir = run_dir
        self._listed: dict[str, set[str]] = {}

    @override
    def write(self, entries: list[Entry]) -> None:
        metrics = [
            self._make(clean(name), value, round(entry.time * 1000), entry.step)
            for entry in entries
            for name, value in entry.values.items()
        ]
        for start in range(0, len(metrics), _MAX_METRICS):
            self._client.log_batch(self._run_id, metrics=metrics[start : start + _MAX_METRICS])

    @override
    def show(self, media: Media) -> None:
        self._client.log_artifact(self._run_id, str(media.path), self._folder(media))

    @override
    def has(self, media: Media) -> bool:
        folder = self._folder(media)
        if folder not in self._listed:
            found = self._client.list_artifacts(self._run_id, folder)
            self._listed[folder] = {one.path.rpartition("/")[2] for one in found}
        return media.path.name in self._listed[folder]

    def _folder(self, media: Media) -> str:
        return media.path.parent.relative_to(self._run_dir).as_posix()

    @override
    def read_known(self, names: Iterable[str]) -> dict[str, int]:
        found = {name: self._client.get_metric_history(self._run_id, clean(name)) for name in names}
        return {name: max(one.step for one in points) for name, points in found.items() if points}

    @override
    def close(self, *, has_failed: bool) -> None:
        self._client.set_terminated(self._run_id, status="FAILED" if has_failed else "FINISHED")


def clean(name: str) -> str:
    """The name of a metric or parameter in characters that MLflow accepts."""
    return _NOT_IN_NAMES.sub("_", name)


def _find_run(client: Any, name: str, source: TrackedRun) -> tuple[str, bool]:  # noqa: ANN401 - of an optional package
    """The id of the MLflow run for this run, and whether it is new."""
    experiment = client.get_experiment_by_name(name)
    number = client.create_experiment(name) if experiment is None else experiment.experiment_id
    found = client.search_runs([number], f"tags.`{ORIGIN}` = '{source.dir.name}'", max_results=1)
    if found:
        client.update_run(found[0].info.run_id, status="RUNNING")
        return found[0].info.run_id, False
    tags = {ORIGIN: source.dir.name, "mlflow.note.content": source.desc}
    run = client.create_run(number, tags=tags, run_name=source.tag or None)
    return run.info.run_id, True
