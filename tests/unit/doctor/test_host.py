"""Checks of versions, cores, memory, limits and devices."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch

from epochal.doctor import host
from epochal.doctor.host import (
    check_devices,
    check_host,
    check_open_files,
    check_shared_memory,
)

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.doctor.diagnostic import Diagnostic


def finding(name: str) -> Diagnostic:
    (found,) = [one for one in check_host() if one.name == name]
    return found


def test_versions_are_listed() -> None:
    found = finding("versions")
    assert found.level == "ok"
    assert f"torch {torch.__version__.partition('+')[0]}" in found.what


def test_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "safetensors":
            raise PackageNotFoundError
        return "1.0"

    monkeypatch.setattr(host, "version", version)
    found = finding("versions")
    assert (found.level, found.hint) == ("fail", "pip install safetensors")


def test_limits_of_a_container_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu").write_text("150000 100000\n")
    (tmp_path / "memory").write_text("2000000\n")
    monkeypatch.setattr(host, "_CPU_QUOTA", tmp_path / "cpu")
    monkeypatch.setattr(host, "_MEMORY_LIMIT", tmp_path / "memory")
    assert finding("cores").what.endswith("a container may use 1.5")
    assert finding("memory").what.startswith("2.0 MB for this container, of ")


def test_a_machine_without_containers_has_no_such_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu").write_text("max 100000\n")
    monkeypatch.setattr(host, "_CPU_QUOTA", tmp_path / "cpu")
    monkeypatch.setattr(host, "_MEMORY_LIMIT", tmp_path / "nowhere")
    assert "container" not in finding("cores").what + finding("memory").what


@pytest.mark.parametrize(("total", "level"), [(64_000_000, "warn"), (8_000_000_000, "ok")])
def test_little_shared_memory_is_reported(
    monkeypatch: pytest.MonkeyPatch, total: int, level: str
) -> None:
    monkeypatch.setattr(host.shutil, "disk_usage", lambda _: SimpleNamespace(total=total))
    found = check_shared_memory()
    assert found.level == level
    assert bool(found.hint) is (level == "warn")


def test_a_system_without_shared_memory_is_fine(tmp_path: Path) -> None:
    assert check_shared_memory(tmp_path / "nowhere").level == "ok"


@pytest.mark.parametrize(
    ("limits", "level", "hint"),
    [
        ((1024, 4096), "warn", "raise it before you train: ulimit -n 4096"),
        ((1024, -1), "warn", "raise it before you train: ulimit -n unlimited"),
        ((65536, 65536), "ok", ""),
        ((-1, -1), "ok", ""),
    ],
)
def test_few_open_files_are_reported(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], level: str, hint: str
) -> None:
    monkeypatch.setattr(host.resource, "getrlimit", lambda _: limits)
    found = check_open_files()
    assert (found.level, found.hint) == (level, hint)


def test_devices_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = SimpleNamespace(name="Fast One", total_memory=80 * 10**9)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: facts)
    found = list(check_devices())
    assert [one.name for one in found] == ["torch", "cuda:0", "cuda:1"]
    assert found[1].what == "Fast One, 80.0 GB"


@pytest.mark.parametrize(("driver", "level"), [("/usr/bin/nvidia-smi", "warn"), (None, "ok")])
def test_a_driver_that_torch_cannot_use_is_reported(
    monkeypatch: pytest.MonkeyPatch, driver: str | None, level: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(host.shutil, "which", lambda _: driver)
    assert list(check_devices())[-1].level == level


def test_a_broken_torch_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    (found,) = check_devices()
    assert found.level == "fail"
    assert found.what.startswith("cannot be imported")
