"""Tests of epochal.experiment.resume.trust."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from epochal.errors import CheckpointError, RecordError, UntrustedCodeError
from epochal.experiment.resume.trust import require_trusted_code
from epochal.records import RunRecord, read_run
from epochal.records.code import code_snapshot as snapshots
from epochal.records.code.code_snapshot import CodeSnapshot

RUN = "shop/20261115-031200-a3f9"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, without a project file."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def make_record(folder: Path, code: object) -> RunRecord:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"project_dir": code}))
    (folder / "status.json").write_text(json.dumps({"status": "finished"}))
    return read_run(folder)


def is_own(record: RunRecord) -> bool:
    try:
        require_trusted_code(record, trust=False)
    except UntrustedCodeError:
        return False
    return True


def test_only_code_of_the_current_project_needs_no_question(here: Path, tmp_path: Path) -> None:
    for folder in ("lab", "lab/clone/.git", "lab/other", "lab/runs/code", "lab/deep/down"):
        (here / folder).mkdir(parents=True)
    (here / "lab" / "other" / "epochal.toml").touch()
    (tmp_path / "beside").mkdir()
    (here / "way").symlink_to(tmp_path / "beside")
    own_run, other_run = here / "runs" / RUN, tmp_path / "copied" / RUN
    table = {
        "the current folder": (own_run, here, True),
        "the current folder, for a run elsewhere": (other_run, here, True),
        "a folder below it": (own_run, here / "lab", True),
        "a folder below it, for a run elsewhere": (other_run, here / "lab", False),
        "a folder beside it": (own_run, tmp_path / "beside", False),
        "a link to a folder beside it": (own_run, here / "way", False),
        "a path that leaves it": (own_run, here / ".." / "beside", False),
        "the folder above": (own_run, tmp_path, False),
        "the whole disk": (own_run, Path("/"), False),
        "a git checkout in it": (own_run, here / "lab" / "clone", False),
        "a folder in a git checkout": (own_run, here / "lab" / "clone" / "a", False),
        "another project in it": (own_run, here / "lab" / "other", False),
        "a folder in the run": (own_run, own_run / "config", False),
        "a folder among the runs": (own_run, here / "runs" / "evil", False),
    }
    for name, (run_dir, code, expected) in table.items():
        code.mkdir(parents=True, exist_ok=True)
        assert is_own(make_record(run_dir, str(code))) is expected, name


def test_a_project_file_makes_all_its_folders_one_project(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "epochal.toml").write_text("runs_dir = 'out'")
    (here / "lab").mkdir()
    record = make_record(tmp_path / "scratch" / RUN, str(here / "lab"))
    assert is_own(record)
    monkeypatch.chdir(here / "lab")
    assert is_own(record)
    (here / "out" / "evil").mkdir(parents=True)
    assert not is_own(make_record(here / "out" / RUN, str(here / "out" / "evil")))
    monkeypatch.chdir(tmp_path)
    assert not is_own(record)


def test_code_of_the_running_script_needs_no_question(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside").mkdir()
    record = make_record(here / "runs" / RUN, str(tmp_path / "beside"))
    script = SimpleNamespace(__file__=str(tmp_path / "beside" / "train.py"))
    monkeypatch.setitem(sys.modules, "__main__", script)  # type: ignore[arg-type]
    assert is_own(record)


def test_unknown_and_relative_folders_of_code_are_refused(here: Path) -> None:
    for code in (None, 3, ["/"], "", ".", "runs/evil"):
        record = make_record(here / "runs" / RUN, code)
        for trust in (False, True):
            with pytest.raises(CheckpointError, match="name that folder yourself: --user-dir DIR"):
                require_trusted_code(record, trust=trust)


def test_code_that_is_not_there_is_not_looked_for_elsewhere(here: Path) -> None:
    record = make_record(here / "runs" / RUN, str(here / "gone"))
    with pytest.raises(
        CheckpointError, match="which does not exist here\n  name the folder that has it"
    ):
        require_trusted_code(record, trust=True)


def test_an_altered_copy_of_the_code_is_refused_even_if_trusted(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "get_package_dir", lambda: tmp_path / "none")
    project = tmp_path / "beside"
    project.mkdir()
    (project / "a.py").write_text("x = 1\n")
    run_dir = here / "runs" / RUN
    record = make_record(run_dir, str(project))
    CodeSnapshot(project=project, run_dir=run_dir).take()
    assert require_trusted_code(record, trust=True) == project
    (run_dir / "code" / "project" / "b.py").touch()
    for trust in (False, True):
        with pytest.raises(RecordError, match=r"1 file is not as recorded: project/b.py \(added\)"):
            require_trusted_code(record, trust=trust)
