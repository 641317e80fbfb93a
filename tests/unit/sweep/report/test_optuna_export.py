"""A sweep can be opened in optuna-dashboard."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from epochal.errors import ConfigError
from epochal.launch.pool.backlog import JobEnd
from epochal.sweep.report.optuna_export import export_study
from epochal.sweep.trials import read_trials
from swept import coordinator, end_job, leave_run, new_sweep

if TYPE_CHECKING:
    from pathlib import Path

SPACE = """\
  space:
    optim.lr: {min: 0.1, max: 10.0, log: true}
    model.width: {min: 1, max: 9}
    loss: [{type: focal, gamma: 2}, plain]
"""


def load(optuna: Any, path: Path, name: str) -> Any:
    if path.suffix == ".db":
        return optuna.load_study(study_name=name, storage=f"sqlite:///{path}")
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    return optuna.load_study(study_name=name, storage=optuna.storages.JournalStorage(backend))


def test_optuna_opens_an_exported_sweep(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    folder = new_sweep(tmp_path, "  method: random\n  trials: 5\n", space=SPACE)
    ends = {
        0: ("finished", [0.9, 0.5]),
        1: ("stopped", [0.8]),
        2: ("failed", []),
        3: ("finished", []),
    }
    with coordinator(folder) as backlog:
        jobs = [backlog.take() for _ in range(5)]
        for number, (status, values) in ends.items():
            job = jobs[number]
            assert job is not None
            path = leave_run(job, values, status, reason="pruned" if number == 1 else "")
            end_job(backlog, job, JobEnd(code=0, run_dir=path))
    settings = folder.read_settings()
    trials = read_trials(folder, settings)
    for name in ("a.db", "b.log"):
        address = export_study(folder.id, settings, trials.values(), tmp_path / name)
        assert address.endswith(name)
        study = load(optuna, tmp_path / name, folder.id)
        assert study.direction.name == "MINIMIZE"
        states = [one.state.name for one in study.trials]
        assert states == ["COMPLETE", "PRUNED", "FAIL", "FAIL", "WAITING"], name
        first = study.trials[0]
        assert (study.best_trial.number, first.value) == (0, 0.5)
        assert first.intermediate_values == {1: 0.9, 2: 0.5}
        assert first.params["optim.lr"] == trials[0].values["optim.lr"]
        assert {one.params["loss"] for one in study.trials} <= {"focal(gamma=2)", "plain"}
        assert first.user_attrs["runs"] == [str(trials[0].runs[0].path)]


def test_a_wrong_file_or_a_missing_optuna_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = new_sweep(tmp_path).read_settings()
    (tmp_path / "there.db").touch()
    rows = {"there.db": "exists", "x.csv": "name it \\*.db"}
    for name, message in rows.items():
        with pytest.raises(ConfigError, match=message):
            export_study("s", settings, [], tmp_path / name)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"needs Optuna\n.*epochal\[sweep\]"):
        export_study("s", settings, [], tmp_path / "x.db")
