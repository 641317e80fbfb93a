"""A dataset that repeats each sample several times."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, final

from torch.utils.data import Dataset
from typing_extensions import override

from epochal.engine.feed.seeded_dataset import may_draw

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class Repeated(Dataset[Any]):
    """Each sample several times, each time with another index and thus other random numbers.

    Args:
        dataset: A dataset with ``__getitem__`` and ``__len__``.
        times: How often each sample comes.
    """

    def __init__(self, dataset: Any, times: int) -> None:  # noqa: ANN401 - of any kind
        self.dataset = dataset
        self.times = times
        self.draws_random = may_draw(dataset)
        """Whether reading a sample may draw random numbers."""

        if hasattr(dataset, "__getitems__"):  # else samples are read, and seeded, one by one
            self.__getitems__ = partial(_take, dataset)

    def __len__(self) -> int:
        return self.times * len(self.dataset)

    @override
    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"{index} is not below {len(self)}")
        return self.dataset[index % len(self.dataset)]


def _take(dataset: Any, indices: Sequence[int]) -> Any:  # noqa: ANN401 - of any kind
    """The samples at some indices, read by the ``__getitems__`` of the dataset."""
    length = len(dataset)
    return dataset.__getitems__([index % length for index in indices])
