"""The processes of one run: rank, barrier, broadcast, reduce, gather, abort."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar, final

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from epochal.distributed.rank_failure import FailureReport
    from epochal.distributed.rank_listener import RankListener

ValueT = TypeVar("ValueT")


class World(ABC):
    """All processes of a run, and the place of this one.

    Every process must call the methods that wait for the others, and in the same order.
    """

    rank: int = 0
    local_rank: int = 0
    """The rank among the processes on this machine."""

    world_size: int = 1
    listener: RankListener | None = None
    """Watches the other processes between collectives; None if there is no process group."""

    look_at: Callable[[BaseException], object] | None = None
    """Called once with an error of this process, before the others are notified."""

    has_failed: bool = False
    """Whether a process failed, so that none can wait for another any more."""

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes and prints: rank 0."""
        return self.rank == 0

    @property
    def is_single(self) -> bool:
        """Whether there is no other process."""
        return self.world_size == 1

    @abstractmethod
    def barrier(self) -> None:
        """Wait until every process is here."""

    @abstractmethod
    def broadcast(self, value: ValueT) -> ValueT:
        """The value of the main process, of any type that can be pickled."""

    @abstractmethod
    def gather(self, value: ValueT) -> list[ValueT]:
        """The values of all processes by rank, in one packed exchange."""

    @abstractmethod
    def collect(self, value: ValueT) -> list[ValueT]:
        """The values of all processes by rank, in the main one; nothing in the others."""

    @abstractmethod
    def reduce(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all processes; changes it in place."""

    @abstractmethod
    def broadcast_tensors(self, tensors: list[Tensor]) -> None:
        """Overwrite tensors with those of the main process."""

    @abstractmethod
    def abort(self, report: FailureReport) -> None:
        """Report why this process failed; the first report counts. Never raises."""

    @abstractmethod
    def explain(self, error: BaseException) -> BaseException:
        """The error of the process that failed first, if this one only lost its connection."""

    @abstractmethod
    def leave(self) -> None:
        """End the connections to the other processes; nothing else may be called afterwards."""


@final
class SingleProcess(World):
    """A run of one process: needs no process group, and nothing waits."""

    @override
    def barrier(self) -> None:
        pass

    @override
    def broadcast(self, value: ValueT) -> ValueT:
        return value

    @override
    def gather(self, value: ValueT) -> list[ValueT]:
        return [value]

    @override
    def collect(self, value: ValueT) -> list[ValueT]:
        return [value]

    @override
    def reduce(self, tensor: Tensor) -> Tensor:
        return tensor

    @override
    def broadcast_tensors(self, tensors: list[Tensor]) -> None:
        pass

    @override
    def abort(self, report: FailureReport) -> None:
        pass

    @override
    def explain(self, error: BaseException) -> BaseException:
        return error

    @override
    def leave(self) -> None:
        pass


def join_numbers(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The sums of numbers by name, added in the order of ranks."""
    total: dict[str, Any] = {}
    for part in parts:
        for name, number in part.items():
            total[name] = total[name] + number if name in total else number
    return total
