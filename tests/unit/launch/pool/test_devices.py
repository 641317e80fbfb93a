"""Devices are found by their names, and leases keep pools apart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from epochal.errors import ConfigError, RecordError
from epochal.launch.jobs.private_files import make_private_dir
from epochal.launch.pool.devices import DeviceRequest, get_leases_dir, parse_devices
from epochal.launch.pool.gpus import Gpu
from pooled import CPU, device, make_leases

GIB = 1 << 30


def gpu(number: int, free: int = 80 * GIB) -> Gpu:
    return Gpu(f"GPU-{number}", "card", lambda: (free, 80 * GIB))


def test_names_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    gpus = [gpu(7), gpu(8)]
    rows = {
        "0,1": ["cuda:0", "cuda:1"],
        "1, 0": ["cuda:1", "cuda:0"],
        "cuda:1": ["cuda:1"],
        "cpu": ["cpu"],
        "cpu,1": ["cpu", "cuda:1"],
    }
    for text, names in rows.items():
        assert [one.name for one in parse_devices(text, gpus=gpus)] == names, text
    assert [one.name for one in parse_devices([1, "cpu"], gpus=gpus)] == ["cuda:1", "cpu"]
    assert [one.name for one in parse_devices(None, gpus=gpus)] == ["cuda:0", "cuda:1"]
    assert [one.name for one in parse_devices(None, gpus=[])] == ["cpu"]


def test_a_process_sees_its_gpu_only() -> None:
    (one,) = parse_devices("1", gpus=[gpu(7), gpu(8)])
    assert (one.choice, one.environment) == ("cuda:0", {"CUDA_VISIBLE_DEVICES": "GPU-8"})
    (first,) = parse_devices("cuda", gpus=[gpu(7), gpu(8)])
    assert (first.name, first.id) == ("cuda:0", "GPU-7")


def test_runs_on_the_cpu_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    (one,) = parse_devices("cpu", per_device=3, gpus=[])
    assert one.environment == {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "2"}
    monkeypatch.setenv("OMP_NUM_THREADS", "5")  # the user's number stays
    (one,) = parse_devices("cpu", per_device=3, gpus=[])
    assert "OMP_NUM_THREADS" not in one.environment


def test_unknown_devices_are_refused() -> None:
    rows = {
        "2": "there is no GPU '2': this machine has 2\n  use 0 to 1",
        "tpu": "unknown device 'tpu'",
        "0,cuda:0": "names '0' twice",
        "": "unknown device ''",
    }
    for text, message in rows.items():
        with pytest.raises(ConfigError) as found:
            parse_devices(text, gpus=[gpu(0), gpu(1)])
        assert message in str(found.value), text
    with pytest.raises(ConfigError, match="no GPU was found\n  use --devices cpu"):
        parse_devices("0", gpus=[])
    with pytest.raises(ConfigError, match="must be at least 1, got 0"):
        parse_devices("cpu", per_device=0, gpus=[])


def test_two_pools_never_share_a_slot(tmp_path: Path) -> None:
    mine, other = (make_leases(tmp_path, per_device=2) for _ in range(2))
    first, second = mine.acquire(), other.acquire()
    assert first is not None
    assert second is not None
    assert first.locks[0].path != second.locks[0].path
    assert mine.acquire() is None
    assert other.acquire() is None
    assert mine.obstacles == {"cpu": "in use"}
    mine.release(first)
    assert other.acquire() is not None


def test_a_pool_that_wants_a_device_alone_waits_for_others(tmp_path: Path) -> None:
    sharing, alone = make_leases(tmp_path, per_device=2), make_leases(tmp_path)
    leases = [sharing.acquire(), sharing.acquire()]
    assert leases[0] is not None
    sharing.release(leases[0])  # its slot is free, but the device is not
    assert alone.acquire() is None


def test_preferred_devices_are_respected_defect_21(tmp_path: Path) -> None:
    leases = make_leases(tmp_path, device("cuda:0"), device("cuda:1"), per_device=2)
    taken = [
        leases.acquire(DeviceRequest(preferred="cuda:1")),
        leases.acquire(DeviceRequest(preferred="1")),
        leases.acquire(DeviceRequest(preferred="1")),
        leases.acquire(),
    ]
    names = [None if one is None else one.device.name for one in taken]
    # The third finds its device full; a preference is no condition.
    assert names == ["cuda:1", "cuda:1", "cuda:0", "cuda:0"]
    assert leases.acquire(DeviceRequest(preferred="cuda:1")) is None
    assert taken[0] is not None
    leases.release(taken[0])
    handed_over = leases.acquire(DeviceRequest(preferred="cuda:1"))
    assert handed_over is not None
    assert handed_over.device.name == "cuda:1"


def test_jobs_are_spread_over_devices_in_their_order(tmp_path: Path) -> None:
    leases = make_leases(tmp_path, device("b"), device("a"), per_device=2)
    names = [one.device.name for _ in range(4) if (one := leases.acquire()) is not None]
    assert names == ["b", "a", "b", "a"]


def test_a_run_of_several_processes_gets_as_many_gpus_or_none(tmp_path: Path) -> None:
    gpus = parse_devices("0,1,2,3", gpus=[gpu(number) for number in range(4)])
    mine, other = make_leases(tmp_path, *gpus), make_leases(tmp_path, *gpus)
    alone = other.acquire(DeviceRequest(preferred="1"))
    assert alone is not None
    pair = DeviceRequest(preferred="2", num_processes=2)
    lease = mine.acquire(pair)
    assert lease is not None
    assert (lease.device.name, lease.device.choice, len(lease.locks)) == ("cuda:2,0", "0,1", 2)
    ids = ",".join(gpus[number].environment["CUDA_VISIBLE_DEVICES"] for number in (2, 0))
    assert lease.device.environment == {"CUDA_VISIBLE_DEVICES": ids}
    assert mine.acquire(pair) is None  # one is free, and stays free for others
    assert mine.acquire() is not None
    other.release(alone)
    mine.release(lease)
    assert other.acquire(DeviceRequest(num_processes=3)) is not None
    assert mine.find_misfit(DeviceRequest(num_processes=4)) == ""
    what = "needs 5 GPUs, and the pool has 4"
    assert mine.find_misfit(DeviceRequest(num_processes=5)) == what


def test_processes_of_a_run_share_the_cores_of_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cpu = parse_devices("cpu", gpus=[])[0]
    cores = int(cpu.environment["OMP_NUM_THREADS"])
    leases = make_leases(tmp_path, cpu)
    lease = leases.acquire(DeviceRequest(num_processes=2))
    assert lease is not None
    assert lease.device.choice == "cpu"
    assert lease.device.environment["OMP_NUM_THREADS"] == str(max(1, cores // 2))
    assert leases.find_misfit(DeviceRequest(num_processes=8)) == ""


def test_a_gpu_without_free_memory_is_left_alone(tmp_path: Path) -> None:
    free = [10 * GIB]
    full = device("cuda:0", read_memory=lambda: (free[0], 80 * GIB))
    leases = make_leases(tmp_path, full)
    assert leases.acquire() is None
    assert leases.obstacles == {"cuda:0": "10.7 GB of 85.9 GB free"}
    free[0] = 70 * GIB
    assert leases.acquire() is not None

    def fail() -> tuple[int, int]:
        raise RuntimeError("the driver does not tell")

    silent = make_leases(tmp_path, device("cuda:1", read_memory=fail))
    assert silent.acquire() is not None


HOLDER = """
import sys, pathlib
from epochal.launch.jobs.private_files import make_private_dir
from epochal.launch.pool.devices import Device, DeviceLeases
cpu = Device(name="cpu", id="cpu", choice="cpu")
leases = DeviceLeases([cpu], folder=pathlib.Path(sys.argv[1]))
lease = leases.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_the_lease_of_a_killed_owner_is_taken_back(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "leases"
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "held\n"
    leases = make_leases(tmp_path, CPU)
    assert leases.acquire() is None
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    assert leases.acquire() is not None


CONTENDER = """
import os, sys
from pathlib import Path
from epochal.launch.pool.devices import Device, DeviceLeases
folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
leases = DeviceLeases([Device(name="cpu", id="cpu", choice="cpu")], per_device=2,
                      folder=folder / "leases")
sys.stdin.read(1)
won = 0
while won < rounds:
    lease = leases.acquire()
    if lease is None:
        os.sched_yield()
        continue
    mark = folder / lease.locks[0].path.name
    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))  # fails if another process has the slot
    won += 1
    mark.unlink()
    leases.release(lease)
"""


def test_processes_that_compete_never_share_a_slot(tmp_path: Path) -> None:
    words = [sys.executable, "-c", CONTENDER, str(tmp_path), "40"]
    rivals = [subprocess.Popen(words, stdin=subprocess.PIPE) for _ in range(3)]
    for one in rivals:
        assert one.stdin is not None
        one.stdin.write(b"!")
        one.stdin.close()
    assert [one.wait() for one in rivals] == [0, 0, 0]


def test_a_lease_lasts_as_long_as_the_process_that_inherited_it(tmp_path: Path) -> None:
    owner, other = make_leases(tmp_path), make_leases(tmp_path)
    lease = owner.acquire()
    assert lease is not None
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", "input()"],
        stdin=subprocess.PIPE,
        pass_fds=[lease.locks[0].descriptor],
    )
    os.close(lease.locks[0].descriptor)  # as if the owner had been killed
    lease.locks[0].descriptor = -1
    assert other.acquire() is None
    child.communicate(b"\n")
    assert other.acquire() is not None


def test_folder_of_leases_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_leases(tmp_path)
    assert (tmp_path / "home" / "leases").stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("EPOCHAL_LEASES_DIR", str(tmp_path / "shared"))
    assert get_leases_dir() == tmp_path / "shared"
    monkeypatch.delenv("EPOCHAL_LEASES_DIR")
    assert get_leases_dir() == Path(f"/tmp/epochal-{os.getuid()}/leases")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(RecordError, match="is not a folder"):
        make_private_dir(tmp_path / "link")
