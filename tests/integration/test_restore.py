"""The restored code of a run gives the same results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from epochal.records import read_run
from epochal.records.code import read_code_digest, read_file, read_manifest
from epochal.records.code.framework import FrameworkPackage, get_archive_name
from small_project import Command, forgetting, run_folders, write_shop

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = write_shop(tmp_path / "project")
    monkeypatch.chdir(folder)
    with forgetting(tmp_path):
        yield folder


def curves(folder: Path) -> dict[str, tuple[bytes, bytes]]:
    """Every point of a run as bits, without times."""
    record = read_run(folder)
    return {
        name: (steps.tobytes(), np.asarray(values).tobytes())
        for name in record.metric_names()
        for steps, values in [record.series(name)]
    }


def edit(project: Path) -> None:
    parts = project / "shop" / "parts.py"
    text = parts.read_text()
    assert "super().__init__(dropout=dropout)" in text
    parts.write_text(
        text.replace("super().__init__(dropout=dropout)", "super().__init__(dropout=0.5)")
    )
    (project / "base.yaml").write_text("optim: {type: SGD, lr: 3.0}\ntrain: {for: 1ep}\n")


def test_restored_run_has_the_same_curves_bit_for_bit(
    project: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("run", "config.yaml", "optim.lr=0.07", "--variant", "long", "--device", "cpu")
    monkeypatch.setattr(sys, "argv", ["epochal", *words])
    (project / "verses.txt").write_bytes(b"by this token: rise\r\n")
    with forgetting(project):
        assert epochal(*words).code == 0
    first = run_folders(project)[0]
    edit(project)
    with forgetting(project):
        assert epochal(*words).code == 0
    assert curves(run_folders(project)[1]) != curves(first)

    target = project.parent / "back"
    done = epochal("restore", first, target, "--json")
    assert done.code == 0, done.err
    restored = json.loads(done.out)
    cd, again = restored["command"]
    assert restored["is_complete"]
    assert (target / "verses.txt").read_bytes() == b"by this token: rise\r\n"
    assert cd == f"cd {target}"
    assert again.endswith("epochal run restored.yaml --device cpu")
    monkeypatch.chdir(target)
    with forgetting(target):
        assert epochal("run", "restored.yaml", "--device", "cpu").code == 0
    (second,) = run_folders(target)
    assert curves(second) == curves(first)
    assert read_code_digest(second) == read_code_digest(first)
    weights = "checkpoints/final.safetensors"
    assert (second / weights).read_bytes() == (first / weights).read_bytes()


def test_restored_run_uses_the_epochal_that_made_it(
    project: Path, epochal: Command, tmp_path: Path
) -> None:
    import epochal as package

    with forgetting(project):
        assert epochal("run", "config.yaml", "--fast", "--device", "cpu").code == 0
    (folder,) = run_folders(project)
    manifest_path = folder / "code" / "manifest.json"
    manifest = read_manifest(folder)
    assert manifest is not None
    assert manifest.framework is not None
    shutil.copytree(Path(package.__file__).parent, tmp_path / "other")
    (tmp_path / "other" / "more.py").touch()
    digest, data = FrameworkPackage.find(tmp_path / "other").archive()
    (folder / "code" / manifest.framework.archive).unlink()
    (folder / "code" / get_archive_name(digest)).write_bytes(data)
    text = manifest_path.read_text().replace(manifest.framework.digest, digest)
    manifest_path.write_text(text)
    done = epochal("restore", folder, tmp_path / "back", "--json")
    restored = json.loads(done.out)
    assert restored["command"][1].startswith("PYTHONPATH=.epochal-code python -m epochal run")
    place = subprocess.run(
        [sys.executable, "-c", "import epochal; print(epochal.__file__)"],
        env={**os.environ, "PYTHONPATH": ".epochal-code"},
        cwd=tmp_path / "back",
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    laid = tmp_path / "back" / ".epochal-code" / "epochal"
    assert Path(place) == laid / "__init__.py"
    assert (laid / "engine" / "loop.py").read_bytes() == (
        Path(package.__file__).parent / "engine" / "loop.py"
    ).read_bytes()


def test_run_folder_holds_the_code_of_project_and_framework(
    project: Path, epochal: Command
) -> None:
    with forgetting(project):
        assert epochal("run", "config.yaml", "--fast").code == 0
    (folder,) = run_folders(project)
    assert read_file(folder, "shop/parts.py") == (project / "shop" / "parts.py").read_bytes()
    manifest = read_manifest(folder)
    assert manifest is not None
    assert set(manifest.by_path) == {
        "base.yaml",
        "config.yaml",
        "pyproject.toml",
        "shop/__init__.py",
        "shop/parts.py",
    }
    assert manifest.framework is not None
    assert (folder / "code" / manifest.framework.archive).is_file()
    facts = json.loads((folder / "run.json").read_text())
    assert facts["code"] == manifest.digest
    assert facts["parent"] is None
    assert facts["data"]["train"]["length"] == 24


def test_run_continues_if_its_code_cannot_be_saved(project: Path, epochal: Command) -> None:
    with forgetting(project):  # a folder in the way of the list
        done = epochal("run", "config.yaml", "--fast", "record.subdirs=[code/manifest.json]")
    assert done.code == 0
    log = next((project / "runs").rglob("run.log")).read_text()
    assert log.count("copy of the code is not complete") == 1


def test_saving_the_code_can_be_turned_off(project: Path, epochal: Command) -> None:
    with forgetting(project):
        assert epochal("run", "config.yaml", "--fast", "record.code=false").code == 0
    (folder,) = run_folders(project)
    assert not (folder / "code").exists()
    done = epochal("restore", folder, project.parent / "back")
    assert done.code == 74
    assert "has no copy of its code" in done.err


def test_evaluation_names_the_run_of_its_weights_as_parent(project: Path, epochal: Command) -> None:
    with forgetting(project):
        assert epochal("run", "config.yaml", "--fast").code == 0
        assert epochal("test", "last").code == 0
    first, second = run_folders(project)
    facts = json.loads((second / "run.json").read_text())
    assert facts["parent"] == {"run": first.name, "kind": "test"}


def test_folds_name_their_cross_validation_as_parent_and_share_its_code(
    project: Path, epochal: Command
) -> None:
    with forgetting(project):
        assert epochal("run", "config.yaml", "--fast", "train.folds=2").code == 0
    whole = next(path for path in run_folders(project) if path.parent.name != "folds")
    fold = whole / "folds" / "1"
    facts = json.loads((fold / "run.json").read_text())
    assert facts["parent"] == {"run": whole.name, "kind": "fold"}
    inner = "code/project/shop/parts.py"
    assert (fold / inner).samefile(whole / inner)


def test_resumed_run_saves_its_current_code(project: Path, epochal: Command) -> None:
    with forgetting(project):
        assert epochal("run", "config.yaml", "checkpoint.every=1ep").code == 0
    (folder,) = run_folders(project)
    with forgetting(project):
        assert epochal("resume", "last", "train.for=3ep").code == 0
    assert not (folder / "code" / "attempt-1").exists()
    parts = project / "shop" / "parts.py"
    before = parts.read_bytes()
    parts.write_bytes(before + b"\n# later\n")
    with forgetting(project):
        assert epochal("resume", "last", "train.for=4ep", "--allow-changed").code == 0
    assert read_file(folder, "shop/parts.py") == before
    assert read_file(folder, "shop/parts.py", attempt=2) == before + b"\n# later\n"
