"""How many jobs a pool gives to a cluster at once; the cluster decides where they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.launch.pool.devices import ANY_DEVICE, Device, DeviceLease, DeviceRequest, Leases

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class ClusterSlots(Leases):
    """Leases of a cluster, which need no locks.

    Args:
        name: The cluster, as tables show it.
        count: Gives the number of jobs at once; asked each time, since clusters grow. None: any.
    """

    def __init__(self, name: str, count: Callable[[], int | None] = lambda: None) -> None:
        self.devices = [Device(name=name, id=name, choice="")]
        self.obstacles: dict[str, str] = {}
        self._name = name
        self._count = count
        self._num_held = 0

    @override
    def acquire(self, request: DeviceRequest = ANY_DEVICE) -> DeviceLease | None:
        limit = self._count()
        self.obstacles = {}
        if limit is not None and self._num_held >= limit:
            self.obstacles = {self._name: f"{self._num_held} of {limit} jobs at once"}
            return None
        self._num_held += 1
        choice = "cpu" if request.preferred == "cpu" else ""
        return DeviceLease(Device(name=self._name, id=self._name, choice=choice))

    @override
    def has(self, name: str) -> bool:
        return True

    @override
    def find_misfit(self, request: DeviceRequest) -> str:
        return ""

    @override
    def release(self, lease: DeviceLease) -> None:
        self._num_held -= 1

    @override
    def beat(self) -> None:
        pass
