"""The devices of a pool, and the leases that keep pools on one machine apart."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal import durable
from epochal.durable.held_lock import BEAT_SECONDS
from epochal.errors import ConfigError, Problem
from epochal.launch.jobs.private import make_private_dir
from epochal.launch.pool.gpus import find_gpus
from epochal.records.layout.process import describe_process, is_owner_gone, utc_now
from epochal.text.formatting import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from epochal.launch.pool.gpus import Gpu

LEASES_VARIABLE = "EPOCHAL_LEASES_DIR"
"""The environment variable with another folder for leases, such as one that containers share."""

_FREE_SHARE = 0.8
"""A run starts only while this share of its part of a GPU's memory is free."""

_NUMBER = re.compile(r"cuda|(?:cuda:)?(\d+)")
_THREADS = "OMP_NUM_THREADS"


@final
@dataclass(frozen=True, kw_only=True)
class Device:
    """A device that jobs run on."""

    name: str
    """``cpu``, ``mps``, or ``cuda:1`` for the second GPU that is visible here."""

    id: str
    """Distinguishes it from all others of this machine, also in other pools."""

    choice: str
    """The device as its processes see it: each sees one GPU only, ``cuda:0``; empty: the first."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its processes."""

    read_memory: Callable[[], tuple[int, int]] | None = None
    """Gives free and total bytes, if the driver reports them."""


def parse_devices(
    text: str | Sequence[str | int] | None,
    *,
    per_device: int = 1,
    gpus: Sequence[Gpu] | None = None,
) -> list[Device]:
    """The devices in a text such as ``0,1`` or ``cpu``, in that order; by default all GPUs.

    Args:
        text: Names, with commas or as a list; None: every GPU, or the CPU without any.
        per_device: How many jobs share a device, and so the cores of the CPU.
        gpus: The GPUs of this machine, instead of asking the driver.

    Raises:
        ConfigError: There is no such device.
    """
    if per_device < 1:
        raise ConfigError(Problem("--per-device", f"must be at least 1, got {per_device}"))
    found = find_gpus() if gpus is None else gpus
    if text is None:
        names = [str(i) for i in range(len(found))] or ["cpu"]
    else:
        listed = text.split(",") if isinstance(text, str) else list(text)
        names = [str(name).strip() for name in listed]
    devices = [_parse_device(name, found, per_device) for name in names]
    ids = [one.id for one in devices]
    twice = next(
        (name for name, one in zip(names, devices, strict=True) if ids.count(one.id) > 1), None
    )
    if twice is not None:
        hint = "name it once, and say --per-device 2"
        raise ConfigError(Problem("--devices", f"names {twice!r} twice", hint=hint))
    return devices


def _parse_device(name: str, gpus: Sequence[Gpu], per_device: int) -> Device:
    if name == "cpu":
        # Processes with as many threads as cores would slow each other down.
        threads = max(1, _count_cores() // per_device)
        own = {} if os.environ.get(_THREADS) else {_THREADS: str(threads)}
        return Device(
            name=name, id=name, choice=name, environment={"CUDA_VISIBLE_DEVICES": ""} | own
        )
    if name == "mps" and sys.platform == "darwin":
        return Device(name=name, id=name, choice=name)
    number = _NUMBER.fullmatch(name)
    if number is None:
        hint = "write --devices 0,1 for GPUs, or --devices cpu"
        raise ConfigError(Problem("--devices", f"unknown device {name!r}", hint=hint))
    index = int(number[1] or 0)
    if index >= len(gpus):
        known = f"there are {len(gpus)} GPUs" if gpus else "no GPU was found"
        hint = "use --devices cpu" if not gpus else f"use 0 to {len(gpus) - 1}"
        raise ConfigError(Problem("--devices", f"there is no GPU {name!r}: {known}", hint=hint))
    gpu = gpus[index]
    return Device(
        name=f"cuda:{index}",
        id=gpu.uuid,
        choice="cuda:0",
        environment={"CUDA_VISIBLE_DEVICES": gpu.uuid},
        read_memory=gpu.read_memory,
    )


def _count_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # Linux only
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def get_leases_dir() -> Path:
    """The folder of this user's leases on this machine.

    It is the same for every process of the user, unlike ``TMPDIR`` and the runtime folder.
    """
    chosen = os.environ.get(LEASES_VARIABLE)
    if chosen:
        return Path(chosen)
    if os.name == "posix":
        return Path("/tmp") / f"epochal-{os.getuid()}" / "leases"
    return Path(tempfile.gettempdir()) / "epochal" / "leases"


@final
class DeviceLease:
    """The right to run one job on a device; a cluster needs no lock."""

    def __init__(self, device: Device, lock: durable.HeldLock | None = None) -> None:
        self.device = device
        self.lock = lock


class Leases(ABC):
    """Decides how many jobs of a pool run at once, and where."""

    devices: Sequence[Device]
    obstacles: Mapping[str, str]
    """Why each device could not be leased at the last attempt, by its name."""

    @abstractmethod
    def acquire(self, preferred: str = "") -> DeviceLease | None:
        """A lease of the preferred device or of another one; None if no job can start now."""

    @abstractmethod
    def release(self, lease: DeviceLease) -> None:
        """Give a lease back."""

    @abstractmethod
    def beat(self) -> None:
        """Show that the leases are in use; call it often."""


@final
class DeviceLeases(Leases):
    """Leases of this process; other pools of this user see them.

    Each job on a device has a lock file, which its process inherits: the lease ends with the job,
    even if the pool was killed.

    Args:
        devices: In the order of preference.
        per_device: How many jobs may run on each at once, those of other pools included.
        folder: The folder of the lock files.
    """

    def __init__(
        self, devices: Sequence[Device], *, per_device: int = 1, folder: Path | None = None
    ) -> None:
        self.devices: list[Device] = list(devices)
        self.per_device = per_device
        folder = folder or get_leases_dir()
        make_private_dir(folder.parent)
        self._folder = make_private_dir(folder)
        self._held: list[DeviceLease] = []
        self._beaten = time.monotonic()
        self.obstacles: dict[str, str] = {}

    @override
    def acquire(self, preferred: str = "") -> DeviceLease | None:
        """A lease of the preferred device if it is free, else of the one with the fewest jobs."""
        held = [one.device.id for one in self._held]
        order = sorted(
            self.devices, key=lambda one: (not _is_named(one, preferred), held.count(one.id))
        )
        self.obstacles = {}
        for device in order:
            lease = self._try(device)
            if lease is not None:
                self._held.append(lease)
                return lease
        return None

    @override
    def release(self, lease: DeviceLease) -> None:
        self._held.remove(lease)
        if lease.lock is not None:
            lease.lock.release()

    @override
    def beat(self) -> None:
        if time.monotonic() - self._beaten > BEAT_SECONDS:
            self._beaten = time.monotonic()
            for lease in self._held:
                if lease.lock is not None:
                    lease.lock.beat()

    def _try(self, device: Device) -> DeviceLease | None:
        folder = self._folder / re.sub(r"[^\w.-]", "-", device.id)
        folder.mkdir(mode=0o700, exist_ok=True)
        with durable.locked(folder):  # two pools must not count at the same time
            number = self._find_free(folder)
            if number is None:
                self.obstacles[device.name] = "in use"
                return None
            obstacle = self._find_memory_obstacle(device)
            if obstacle:
                self.obstacles[device.name] = obstacle
                return None
            facts = describe_process(os.getpid()) | {"device": device.name, "time": utc_now()}
            lock = durable.try_lock(folder / f"{number}.lock", facts, is_gone=is_owner_gone)
        return None if lock is None else DeviceLease(device, lock)

    def _find_free(self, folder: Path) -> int | None:
        """The number of a free lock; None if so many are held that the device is full."""
        free: list[int] = []
        num_held = 0
        known = {int(path.stem) for path in folder.glob("*.lock") if path.stem.isdecimal()}
        for number in sorted(known | set(range(self.per_device))):
            path = folder / f"{number}.lock"
            if number not in known:
                free.append(number)
                continue
            lock = durable.try_lock(path, {}, is_gone=is_owner_gone)
            if lock is None:
                num_held += 1
            else:
                lock.release()
                free.append(number)
        return free[0] if num_held < self.per_device else None

    def _find_memory_obstacle(self, device: Device) -> str:
        """Why there is not enough memory for one more job; empty if there is."""
        if device.read_memory is None:
            return ""
        with suppress(RuntimeError):
            free, total = device.read_memory()
            if free < _FREE_SHARE * total / self.per_device:
                return f"{format_bytes(free)} of {format_bytes(total)} free"
        return ""


def _is_named(device: Device, name: str) -> bool:
    return bool(name) and name in (device.name, device.name.removeprefix("cuda:"))
