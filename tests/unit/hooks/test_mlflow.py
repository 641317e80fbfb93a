"""MLflow: what its own client finds in a SQLite database."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from epochal.engine.tracking.mirror import Entry
from epochal.engine.tracking.tracker import TrackedRun
from epochal.hooks.mlflow import MLflow
from epochal.records.folder.media import Media
from tracked import Series, carry_out_tracked, empty_database, recorded

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of the package


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(empty_database(), tmp_path / 'mlflow.db')}"


def find(uri: str, experiment: str) -> tuple[Any, Any]:
    """The client, and the only run of an experiment."""
    import mlflow

    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return client, run


def read(client: Any, run: Any) -> Series:
    series: Series = {}
    for name in run.data.metrics:
        points = [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
        assert len(points) == len(dict(points)), f"{name}: {points}"
        series[name] = dict(points)
    return series


def test_the_database_equals_the_record(tmp_path: Path, uri: str) -> None:
    folder, result = carry_out_tracked(tmp_path, MLflow(uri=uri, every="2st"))
    assert result.ok, result.message
    client, run = find(uri, "tests")
    assert read(client, run) == recorded(folder)
    assert (run.info.run_name, run.info.status) == ("tiny", "FINISHED")
    assert run.data.tags["epochal.run"] == folder.name
    assert run.data.tags["mlflow.note.content"] == "to see"


def test_a_resumed_run_continues_its_mlflow_run(tmp_path: Path, uri: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "expanded.yaml").write_text(
        "optim: {lr: 0.25, betas: [1, 2]}\nseed: 3\n"
    )
    for step, has_failed in ((1, True), (2, False)):
        sink = MLflow(uri=uri, experiment="e").open(TrackedRun(tmp_path, "tiny", "", ""))
        assert sink.read_known(["top@1 %", "b"]) == ({"top@1 %": 1} if step == 2 else {})
        sink.write([Entry(step, 0.0, {"top@1 %": float(step)})])
        sink.close(has_failed=has_failed)
    client, run = find(uri, "e")
    assert read(client, run) == {"top_1 _": {1: 1.0, 2: 2.0}}
    assert run.data.params == {
        "optim.lr": "0.25",
        "optim.betas.0": "1",
        "optim.betas.1": "2",
        "seed": "3",
    }
    assert run.info.status == "FINISHED"


def test_media_are_artifacts_with_their_paths_and_are_sent_once(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where MLflow keeps artifacts that no server takes
    run_dir = tmp_path / "run"
    path = run_dir / "media" / "image" / "samples" / "grid-000003.png"
    path.parent.mkdir(parents=True)
    media = Media("image", "samples/grid", 3, path)
    for content in (b"first", b"again"):
        path.write_bytes(content)
        sink = MLflow(uri=uri).open(TrackedRun(run_dir, "tiny", "", ""))
        assert sink.has(media) == (content == b"again")
        if content == b"first":
            sink.show(media)
        sink.close(has_failed=False)
    client, run = find(uri, "epochal")
    (one,) = client.list_artifacts(run.info.run_id, "media/image/samples")
    assert one.path == "media/image/samples/grid-000003.png"
    copy = client.download_artifacts(run.info.run_id, one.path, str(tmp_path))
    assert Path(copy).read_bytes() == b"first"


def test_a_failed_run_is_failed_in_mlflow(tmp_path: Path, uri: str) -> None:
    sink = MLflow(uri=uri).open(TrackedRun(tmp_path, "tiny", "", ""))
    sink.write([Entry(1, 0.0, {"a": float("nan")})])
    sink.close(has_failed=True)
    assert find(uri, "epochal")[1].info.status == "FAILED"


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        (None, "MLflow"),
        ("sqlite:///m.db", "sqlite:///m.db"),
        ("postgresql://me:secret@host/db", "postgresql://host/db"),
    ],
)
def test_the_description_hides_the_password(uri: str | None, text: str) -> None:
    assert MLflow(uri=uri).describe(None) == text
