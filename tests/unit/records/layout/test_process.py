"""Tests of epochal.records.layout.process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from epochal.records.layout import process
from epochal.records.layout.process import host_name, is_process_gone, process_token

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@pytest.fixture
def ended_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_this_process_is_alive() -> None:
    assert not is_process_gone(os.getpid(), host=host_name(), token=process_token(os.getpid()))
    assert not is_process_gone(os.getpid(), host=host_name())


def test_ended_process_is_recognised(ended_pid: int) -> None:
    assert is_process_gone(ended_pid, host=host_name(), token="boot:1")
    assert is_process_gone(ended_pid, host=host_name())


def test_processes_of_other_hosts_and_impossible_pids_count_as_running(ended_pid: int) -> None:
    assert not is_process_gone(ended_pid, host="another-host")
    for pid in (0, -1, 10**30):
        assert not is_process_gone(pid, host=host_name()), pid


@needs_proc
def test_a_reused_pid_is_detected() -> None:
    mine = process_token(os.getpid())
    boot, _, start = mine.partition(":")
    assert is_process_gone(os.getpid(), host=host_name(), token=f"{boot}:{int(start) - 1}")
    assert is_process_gone(os.getpid(), host=host_name(), token=f"other-boot:{start}")


@needs_proc
def test_a_zombie_counts_as_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    token = process_token(child.pid)
    assert not is_process_gone(child.pid, host=host_name(), token=token)
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_process_gone(child.pid, host=host_name(), token=token)
    child.wait()
    assert is_process_gone(child.pid, host=host_name(), token=token)


def test_without_proc_only_the_pid_decides(monkeypatch: pytest.MonkeyPatch, ended_pid: int) -> None:
    monkeypatch.setattr(process, "Path", NoFiles)
    assert process_token(os.getpid()) == ""
    assert not is_process_gone(os.getpid(), host=host_name(), token="boot:1")
    assert is_process_gone(ended_pid, host=host_name(), token="boot:1")


class NoFiles:
    def __init__(self, name: str) -> None:
        self.name = name

    def read_text(self, *_: str) -> str:
        raise FileNotFoundError(self.name)
