"""The devices of a pool, and the leases that keep pools on one machine apart."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal import durable
from epochal.durable.held_lock import BEAT_SECONDS
from epochal.errors import ConfigError, Problem
from epochal.launch.jobs.private_files import make_private_dir
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
class DeviceRequest:
    """What a job needs to start."""

    preferred: str = ""
    """The device that it runs on if that is free."""

    num_processes: int = 1
    """Each has its own GPU; all of them share a CPU."""


@final
@dataclass(frozen=True, kw_only=True)
class Device:
    """A device that jobs run on, or several GPUs for the processes of one job."""

    name: str
    """``cpu``, ``mps``, ``cuda:1`` for the second GPU that is visible here, or ``cuda:0,1``."""

    id: str
    """Distinguishes it from all others of this machine, also in other pools."""

    choice: str
    """The device as its processes see it: a job sees only its GPUs, ``cuda:0`` or ``0,1``; empty:
    the first."""

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
        known = f"this machine has {len(gpus)}" if gpus else "no GPU was found"
        hint = (
            "use --devices cpu" if not gpus else "use 0" + f" to {len(gpus) - 1}" * (len(gpus) > 1)
        )
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
    """The right to run one job on a device, with a lock for each GPU; a cluster needs none."""

    def __init__(self, device: Device, locks: Sequence[durable.HeldLock] = ()) -> None:
        self.device = device
        self.locks = tuple(locks)


ANY_DEVICE = DeviceRequest()


class Leases(ABC):
    """Decides how many jobs of a pool run at once, and where."""

    devices: Sequence[Device]
    obstacles: Mapping[str, str]
    """Why each device could not be leased at the last attempt, by its name."""

    @abstractmethod
    def acquire(self, request: DeviceRequest = ANY_DEVICE) -> DeviceLease | None:
        """A lease of the preferred device or of another one; None if the job cannot start now."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether a job may prefer the device with this name."""

    @abstractmethod
    def find_misfit(self, request: DeviceRequest) -> str:
        """Why the job can never start here; empty if it can."""

    @abstractmethod
    def release(self, lease: DeviceLease) -> None:
        """Release a lease."""

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
        self._held: dict[DeviceLease, list[Device]] = {}
        self._beaten = time.monotonic()
        self.obstacles: dict[str, str] = {}

    @override
    def acquire(self, request: DeviceRequest = ANY_DEVICE) -> DeviceLease | None:
        """A lease of the preferred device if it is free, else of those with the fewest jobs."""
        held = [one.id for devices in self._held.values() for one in devices]
        order = sorted(
            self.devices,
            key=lambda one: (not _is_named(one, request.preferred), held.count(one.id)),
        )
        self.obstacles = {}
        taken: list[tuple[Device, durable.HeldLock]] = []
        for device in order:
            needed = _count_needed(device, request)
            lock = None if needed is None else self._try(device)
            if lock is None:
                continue
            if needed == 1:
                self._release([one for _, one in taken])
                taken = []
            taken.append((device, lock))
            if len(taken) == needed:
                devices = [one for one, _ in taken]
                lease = DeviceLease(
                    _join(devices, request.num_processes), [one for _, one in taken]
                )
                self._held[lease] = devices
                return lease
        self._release([one for _, one in taken])
        return None

    @override
    def has(self, name: str) -> bool:
        return any(_is_named(device, name) for device in self.devices)

    @override
    def find_misfit(self, request: DeviceRequest) -> str:
        needed = [_count_needed(one, request) for one in self.devices]
        if any(one is not None and needed.count(one) >= one for one in needed):
            return ""
        return f"needs {request.num_processes} GPUs, and the pool has {len(needed)}"

    @override
    def release(self, lease: DeviceLease) -> None:
        del self._held[lease]
        self._release(lease.locks)

    @override
    def beat(self) -> None:
        if time.monotonic() - self._beaten > BEAT_SECONDS:
            self._beaten = time.monotonic()
            for lease in self._held:
                for lock in lease.locks:
                    lock.beat()

    def _release(self, locks: Sequence[durable.HeldLock]) -> None:
        for lock in locks:
            lock.release()

    def _try(self, device: Device) -> durable.HeldLock | None:
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
            return durable.try_lock(folder / f"{number}.lock", facts, is_gone=is_owner_gone)

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
    kind, _, number = device.name.partition(":")  # --device cuda is any of them
    return bool(name) and name in (device.name, kind, number)


def _count_needed(device: Device, request: DeviceRequest) -> int | None:
    """How many devices such as this one a job needs; None if its processes cannot use them."""
    if request.num_processes == 1 or device.name == "cpu":
        return 1
    return None if device.name == "mps" else request.num_processes


def _join(devices: Sequence[Device], num_processes: int) -> Device:
    """The devices of one job as one, for all its processes."""
    first = devices[0]
    if num_processes == 1:
        return first
    if len(devices) == 1:  # the processes share the cores
        environment = dict(first.environment)
        if _THREADS in environment:
            environment[_THREADS] = str(max(1, int(environment[_THREADS]) // num_processes))
        return replace(first, environment=environment)
    visible = ",".join(one.environment["CUDA_VISIBLE_DEVICES"] for one in devices)
    return Device(
        name="cuda:" + ",".join(one.name.removeprefix("cuda:") for one in devices),
        id=",".join(one.id for one in devices),
        choice=",".join(str(number) for number in range(len(devices))),
        environment={**first.environment, "CUDA_VISIBLE_DEVICES": visible},
    )
