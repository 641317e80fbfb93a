"""Tests of epochal.records.machine."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from epochal import durable
from epochal.records import machine
from epochal.records.machine import describe_machine, package_versions, read_environment

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


def test_versions_of_packages_are_known_without_importing_them() -> None:
    code = (
        "import sys; from epochal.records.machine import describe_machine as d\n"
        "print(d()['packages']['torch']); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == version("torch")


def test_state_of_the_repository_is_known(tmp_path: Path) -> None:
    assert describe_machine(tmp_path)["git"] is None


def test_only_listed_variables_of_the_environment_are_kept(
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


def test_cards_and_driver_are_what_the_driver_says(
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


def test_the_remains_of_a_broken_installation_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Whole:
        name, version = "Whole", "1.0"

    class Broken:
        @property
        def name(self) -> str:
            raise FileNotFoundError("no metadata")

    class Nameless:
        name, version = None, None

    found = [Broken(), Nameless(), Whole()]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: found)
    assert package_versions() == {"whole": "1.0"}
