"""Tests of epochal.experiment.record.system_sampler."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from epochal.engine.interfaces.every import Every
from epochal.experiment.record import system_sampler
from epochal.experiment.record.system_sampler import (
    GpuSampler,
    SystemSampler,
    find_children,
    find_visible_gpus,
    import_nvml,
    sampling_system,
    write_samples,
)
from epochal.records import NullWriter, read_run
from epochal.records.metrics.system_figures import SYSTEM_FILE, read_system
from small_project import Command, run_folders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from epochal.engine.interfaces.run import Run

FIRST = {"system/memory", "system/disk/free", "system/process/memory"}
RATES = {"system/cpu", "system/process/cores"}  # disks are not counted in every container


def make_run(folder: Path | None, every: str | int = "10s") -> Run:
    log = SimpleNamespace(system_every=Every.parse(every))
    options = SimpleNamespace(log=log)
    return SimpleNamespace(dir=folder, step=5, options=options, writer=NullWriter())  # type: ignore[return-value]


def is_sampling() -> bool:
    return "epochal-system" in {thread.name for thread in threading.enumerate()}


@pytest.fixture
def child() -> Iterator[psutil.Process]:
    """A process that this one started, and that waits."""
    code = "print(flush=True); input()"
    words = [sys.executable, "-S", "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield psutil.Process(process.pid)
        process.communicate(b"\n")


def test_samples_are_written_at_the_start_after_each_wait_and_at_the_end(tmp_path: Path) -> None:
    waits, numbers = iter([False, False, True]), iter(range(9))
    path = tmp_path / SYSTEM_FILE
    write_samples(path, lambda: {"system/cpu": next(numbers)}, wait=lambda: next(waits))
    assert read_system(tmp_path).series("system/cpu")[1].tolist() == [0, 1, 2, 3]


def test_a_resumed_run_continues_the_file_and_removes_an_incomplete_line(tmp_path: Path) -> None:
    path = tmp_path / SYSTEM_FILE
    write_samples(path, lambda: {"system/cpu": 1.0}, wait=lambda: True)
    with path.open("ab") as file:
        file.write(b'{"time":17, "syst')
    write_samples(path, lambda: {"system/cpu": 2.0}, wait=lambda: True)
    assert read_system(tmp_path).series("system/cpu")[1].tolist() == [1, 1, 2, 2]
    assert len(path.read_bytes().splitlines()) == 4


def test_rates_are_means_since_the_previous_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, seconds = iter([100.0, 110.0]), iter([3.0, 8.0])
    monkeypatch.setattr(system_sampler, "find_children", lambda _: [])
    monkeypatch.setattr(
        psutil.Process, "cpu_times", lambda _: SimpleNamespace(user=next(seconds), system=1.0)
    )
    counts = iter([(1000, 0), (6000, 70)])

    def count(*, nowrap: bool) -> Any:
        assert not nowrap  # it would hold a lock that forked processes inherit
        return SimpleNamespace(
            **dict(zip(("read_bytes", "write_bytes"), next(counts), strict=True))
        )

    monkeypatch.setattr(psutil, "disk_io_counters", count)
    sampler = SystemSampler(tmp_path, now=lambda: next(clock))
    assert sampler.sample().keys() == FIRST
    found = sampler.sample()
    assert found.keys() == FIRST | RATES | {"system/disk/read", "system/disk/write"}
    assert found["system/process/cores"] == 0.5
    assert (found["system/disk/read"], found["system/disk/write"]) == (500, 7)
    assert 0 <= found["system/cpu"] <= 100


def test_a_machine_without_counted_disks_lacks_only_their_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> Any:
        raise NotImplementedError("no /proc/diskstats")

    for count in (lambda **_: None, refuse):
        monkeypatch.setattr(psutil, "disk_io_counters", count)
        sampler = SystemSampler(tmp_path)
        sampler.sample()
        assert sampler.sample().keys() == FIRST | RATES, count


def test_processes_that_the_run_started_count(tmp_path: Path, child: psutil.Process) -> None:
    own = psutil.Process().memory_info().rss
    assert SystemSampler(tmp_path).sample()["system/process/memory"] > own + 1_000_000


def test_children_are_found_with_and_without_the_list_of_linux(
    tmp_path: Path, child: psutil.Process
) -> None:
    assert child in find_children(psutil.Process())
    assert child in find_children(psutil.Process(), tmp_path / "nothing")


class FakeNvml:
    """Two GPUs; the second one does not measure its power."""

    class NVMLError(Exception):
        """What every function raises."""

    has_driver = True

    def nvmlInit(self) -> None:
        if not self.has_driver:
            raise self.NVMLError("driver not loaded")

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, gpu: int) -> str:
        return ("GPU-aa11", "GPU-bb22")[gpu]

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> Any:
        return SimpleNamespace(gpu=90 + gpu)

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:
        return SimpleNamespace(used=1000 + gpu)

    def nvmlDeviceGetPowerUsage(self, gpu: int) -> int:
        if gpu:
            raise self.NVMLError("not supported")
        return 512_300

    def nvmlDeviceGetTemperature(self, gpu: int, sensor: int) -> int:
        return 60 + gpu + sensor


def test_gpus_are_measured_as_cuda_numbers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    first = {"use": 90, "memory": 1000, "power": 512.3, "temperature": 60}
    second = {"use": 91, "memory": 1001, "temperature": 61}
    for visible, expected in [("0,1", (first, second)), ("1,0", (second, first)), ("", ())]:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert GpuSampler(FakeNvml()).sample() == {
            f"system/gpu{number}/{name}": value
            for number, own in enumerate(expected)
            for name, value in own.items()
        }, visible


def test_nothing_is_measured_without_gpu_or_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeNvml, "has_driver", False)
    assert GpuSampler(FakeNvml()).sample() == {}
    monkeypatch.setattr(system_sampler, "_NVIDIA_DEVICES", ())
    assert GpuSampler(import_nvml()).sample() == {}


def test_a_missing_package_is_reported_with_the_command_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(system_sampler, "_NVIDIA_DEVICES", (str(tmp_path),))
    assert import_nvml() is not None
    assert caplog.messages == []
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert import_nvml() is None
    assert caplog.messages == ["GPU use is not recorded: `pip install 'epochal[nvml]'`"]


def test_visible_gpus_are_read_as_cuda_does() -> None:
    names = ["GPU-aa11", "GPU-aa22", "GPU-bb33"]
    for visible, expected in {
        None: [0, 1, 2],
        "": [],
        "-1": [],
        "2": [2],
        "2, 0": [2, 0],
        "0,7,1": [0],
        "GPU-bb": [2],
        "GPU-aa22,GPU-bb33": [1, 2],
        "GPU-aa": [],
        "MIG-aa11,0": [],
    }.items():
        assert find_visible_gpus(names, visible) == expected, visible


def test_every_run_has_a_first_and_a_last_sample(shop: Path, epochal: Command) -> None:
    assert epochal("run", "config.yaml").code == 0
    record = read_run(run_folders(shop)[0])
    samples = record.system.samples
    assert [sample["step"] for sample in samples] == [0, record.summary.step]
    assert samples[0].keys() >= FIRST
    assert samples[1].keys() >= FIRST | RATES
    assert not [name for name in record.metric_names() if name.startswith("system/")]
    assert not is_sampling()


def test_errors_and_interrupts_end_the_thread_after_a_last_sample(tmp_path: Path) -> None:
    for error in (RuntimeError, KeyboardInterrupt, SystemExit):
        folder = tmp_path / error.__name__
        folder.mkdir()
        with pytest.raises(error), sampling_system(make_run(folder)):
            raise error
        assert not is_sampling(), error
        assert len(read_system(folder).samples) == 2, error


def test_nothing_is_sampled_without_a_period_or_a_record(tmp_path: Path) -> None:
    for run in (make_run(tmp_path, every=0), make_run(None)):
        with sampling_system(run):
            assert not is_sampling()
    assert not list(tmp_path.iterdir())


def test_an_error_while_sampling_is_reported_and_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: SystemSampler) -> Any:
        raise OSError("no more files")

    monkeypatch.setattr(SystemSampler, "sample", refuse)
    with sampling_system(make_run(tmp_path)):
        pass
    assert "the record has no further system figures: no more files" in caplog.text


def test_a_forked_process_leaves_the_block_at_once_and_writes_nothing(tmp_path: Path) -> None:
    pid = -1
    try:
        with sampling_system(make_run(tmp_path)):
            pid = os.fork()
    finally:
        if pid == 0:
            os._exit(8 if is_sampling() else 7)  # libraries may have started other threads
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert len(read_system(tmp_path).samples) == 2
