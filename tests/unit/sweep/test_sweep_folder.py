"""The folder of a sweep keeps what is searched, the frozen experiment and its trials."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from epochal.errors import ConfigError, RecordError
from epochal.records.layout.sweep_folders import is_sweep_folder
from epochal.sweep.sweep_folder import SweepFolder, create_sweep, find_sweep, list_sweeps
from swept import new_sweep

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.launch.jobs.frozen_job import FrozenJob


def facts(folder: SweepFolder, number: int, repeat: int = 0):
    return {"sweep": folder.id, "number": number, "repeat": repeat, "values": {"optim.lr": 0.5}}


def test_a_trial_exists_when_its_job_is_written(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path)
    assert list(folder.iter_jobs()) == []
    base = folder.read_base()
    for number, repeat in ((1, 0), (0, 1), (0, 0)):
        folder.write_job(base, facts(folder, number, repeat))
    jobs = list(folder.iter_jobs())
    assert [one.key for one in jobs] == [0, 1, 1000]
    found = jobs[2].job.choices["trial"]
    assert {key: found[key] for key in found if key != "seal"} == facts(folder, 1)
    assert jobs[2].job.source == base.source


def test_changes_are_kept_and_read_again(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path)
    stamp = folder.read_stamp()
    changed = folder.change(["sweep.trials=40", "sweep.space.optim.lr.min=1e-5"])
    assert folder.read_stamp() != stamp
    assert (changed.num_trials, changed.space.parameters[0].values.bounds()) == (40, (1e-5, 10.0))
    again = folder.change(["sweep.space.model.width=[1, 2]", "sweep.trials=41"])
    assert [one.key for one in again.space.parameters] == ["optim.lr", "model.width"]
    assert again == folder.read_settings()
    assert again.num_trials == 41


def test_a_mistaken_change_changes_nothing(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path)
    before = folder.read_facts()
    for change in ("sweep.trials=none", "sweep.nope=1", "sweep.space.optim.lr.min=99"):
        with pytest.raises(ConfigError, match="sweep"):
            folder.change([change])
        assert folder.read_facts() == before, change


def test_a_sweep_that_cannot_be_frozen_leaves_no_folder(tmp_path: Path) -> None:
    def freeze(folder: Path) -> FrozenJob:
        folder.mkdir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create_sweep(tmp_path, freeze, name="toy", command="")
    assert list((tmp_path / "sweeps").iterdir()) == []


def test_one_process_at_a_time_runs_a_sweep(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path)
    lock = folder.lock()
    with pytest.raises(RecordError, match=r"process \d+ on .* runs this sweep"):
        folder.lock()
    lock.release()
    folder.lock().release()


def test_sweeps_are_found_by_name(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    with pytest.raises(RecordError, match="no sweeps here"):
        find_sweep("last", runs)
    first, second = new_sweep(tmp_path), new_sweep(tmp_path)
    assert {one.id for one in list_sweeps(runs)} == {first.id, second.id}
    rows = {
        str(first.path): first,
        first.id: first,
        second.id[-11:]: second,  # four digits alone could be a part of the time
    }
    for name, expected in rows.items():
        assert find_sweep(name, runs).path == expected.path, name
    assert find_sweep("last", runs) in (first, second)
    assert is_sweep_folder(first.path)
    assert not is_sweep_folder(runs)
    with pytest.raises(RecordError, match="toy: fits 2 sweeps"):
        find_sweep("toy", runs)
    with pytest.raises(RecordError, match="nope: no such sweep"):
        find_sweep("nope", runs)


def test_only_this_user_can_read_the_jobs(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path)
    waiting = folder.write_job(folder.read_base(), facts(folder, 0))
    assert waiting.file.stat().st_mode & 0o777 == 0o600
    assert waiting.file.parent.stat().st_mode & 0o777 == 0o700


def test_a_sweep_of_another_user_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = new_sweep(tmp_path)
    moved = SweepFolder(folder.path.with_name("moved"))
    shutil.copytree(folder.path, moved.path)
    with pytest.raises(RecordError, match="was not started by you here"):
        moved.lock()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    for action in (folder.lock, lambda: folder.change(["sweep.trials=9"])):
        with pytest.raises(RecordError, match="its trials would execute code"):
            action()
    monkeypatch.undo()
    base = folder.path / "base.json"
    base.write_text(base.read_text().replace("toy.yaml", "evil.yaml"))
    with pytest.raises(RecordError, match="was changed since"):
        folder.lock()


def test_a_job_that_was_changed_is_not_run(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path)
    base = folder.read_base()
    waiting = folder.write_job(base, facts(folder, 0))
    assert folder.is_own_job(base, waiting)
    text = waiting.file.read_text()
    for old, new in (("0.5", "0.6"), ("toy.yaml", "evil.yaml"), ('"number": 0', '"number": 1')):
        assert old in text, old
        waiting.file.write_text(text.replace(old, new))
        (changed,) = folder.iter_jobs()
        assert not folder.is_own_job(base, changed), old
