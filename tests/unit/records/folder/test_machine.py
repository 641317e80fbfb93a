"""Tests of epochal.records.folder.machine."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib.metadata import PathDistribution, distributions, version
from pathlib import Path
from typing import TYPE_CHECKING

from epochal import durable
from epochal.records.folder import machine
from epochal.records.folder.machine import describe_machine, package_versions, read_environment

if TYPE_CHECKING:
    import pytest


def test_machine_is_described_in_json(tmp_path: Path) -> None:
    facts = json.loads(durable.encode_json(describe_machine(tmp_path)))
    assert facts["python"] == platform.python_version()
    assert facts["cores"] >= facts["usable_cores"] >= 1
    assert facts["memory_bytes"] > 2**20
    for key in ("hostname", "platform", "cpu", "executable"):
        assert isinstance(facts[key], str)
        assert facts[key]


def test_versions_of_packages_need_no_import() -> None:
    code = (
        "import sys; from epochal.records.folder.machine import describe_machine as d\n"
        "print(d()['packages']['torch']); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == version("torch")


def test_a_folder_without_a_repository_has_no_git_state(tmp_path: Path) -> None:
    assert describe_machine(tmp_path)["git"] is None


def test_only_relevant_environment_variables_are_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("MY_OWN_SETTING", "red")
    monkeypatch.setenv("SLURM_JWT", "eyJhbGciOiJIUzI1NiJ9")
    monkeypatch.setenv("TORCH_HUB_TOKEN", "abcdefgh12345678")
    found = read_environment()
    assert found["CUDA_VISIBLE_DEVICES"] == "1"
    assert found["OMP_NUM_THREADS"] == "3"
    assert not {"MY_OWN_SETTING", "SLURM_JWT", "TORCH_HUB_TOKEN", "PATH", "HOME"} & found.keys()


def test_gpus_and_driver_are_read_from_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = tmp_path / "gpus" / "0000:01:00.0"
    card.mkdir(parents=True)
    (card / "information").write_text("Model: \t NVIDIA H200\nIRQ: 1\n")
    (tmp_path / "version").write_text("NVRM version: 590.1\nGCC version: 12\n")
    monkeypatch.setattr(machine, "_NVIDIA", tmp_path)
    facts = describe_machine(tmp_path)
    assert facts["gpus"] == ["NVIDIA H200"]
    assert facts["driver"] == "NVRM version: 590.1"


def test_systems_without_proc_or_sysconf_are_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError("not here")

    monkeypatch.setattr("os.sysconf", refuse)
    monkeypatch.setattr(Path, "read_text", refuse)
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    facts = describe_machine(tmp_path)
    assert facts["memory_bytes"] is None
    assert facts["usable_cores"] == facts["cores"]
    assert facts["cpu"]


def test_broken_installations_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreadable(PathDistribution):
        def read_text(self, filename: str) -> str | None:
            raise OSError(f"{filename} cannot be read")

    def write(folder: str, text: bytes) -> None:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "METADATA").write_bytes(text)

    (tmp_path / "gone.dist-info").mkdir()
    write("nameless.dist-info", b"Metadata-Version: 2.1\nVersion: 1.0\n")
    write("undated.dist-info", b"Name: undated\n")
    write("latin.dist-info", b"Name: latin\nVersion: 1.0\nAuthor: M\xfcller\n")
    page = b"Name: Whole\nVersion: 1.0\nLicense: free\n Version: 3\n\nName: page\n\nVersion: 2\n"
    write("Whole-1.0.dist-info", page)
    found = [Unreadable(tmp_path), *distributions(path=[str(tmp_path)])]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: found)
    assert package_versions.__wrapped__() == {"whole": "1.0"}


def test_every_package_has_its_version() -> None:
    named = {one.name.lower(): one.version for one in reversed([*distributions()]) if one.name}
    assert package_versions.__wrapped__() == dict(sorted(named.items()))
