"""How several processes share one model: the interface, and DistributedDataParallel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import get_total_norm
from typing_extensions import override

from epochal.distributed.flat_tensors import average_flat
from epochal.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.distributed.world import World

MAX_SUMS = 64
"""How many numbers of a step can be added up over all processes."""

_MODEL_NOT_CALLED = """\
batch_forward: computed a loss without calling the model that it received, so the processes would \
train different weights
  call the argument `model` in training: run.raw_model and model.module do not average gradients"""


class Strategy(ABC):
    """How a model is shared between processes; all that steps need to know about it.

    In a step, ``carry`` comes before the backward pass of each loss, and ``read_sums`` gives the
    numbers of all processes afterwards. They are means over the processes, like gradients.
    """

    is_sharded: bool = False
    """Whether each process has only a part of every parameter."""

    @abstractmethod
    def share(self, model: nn.Module, others: Sequence[nn.Parameter], *, carries: bool) -> None:
        """Share a model and other trained parameters; called again when what is trained changes.

        Args:
            model: The model; it is not changed.
            others: Trained parameters that are not in the model, such as those of a loss.
            carries: Whether each step calls ``carry``, so that its numbers travel with the
                gradients; otherwise they are added up separately.
        """

    @property
    @abstractmethod
    def trained_model(self) -> nn.Module:
        """What training calls instead of the model."""

    @abstractmethod
    def accumulating(self) -> AbstractContextManager[Any]:
        """Accumulate gradients in a block without reducing them, as ``no_sync`` of DDP."""

    @abstractmethod
    def carry(self, numbers: Tensor) -> None:
        """Send numbers to the other processes with the gradients of the next backward pass."""

    @abstractmethod
    def read_sums(self) -> Tensor:
        """The means of the carried numbers, after the last backward pass of a step."""

    @abstractmethod
    def reduce(self, gradients: Sequence[Tensor], numbers: Tensor) -> Tensor:
        """Average gradients that were accumulated in place, and numbers, in one exchange."""

    @abstractmethod
    def share_another(self, model: nn.Module) -> nn.Module:
        """A further model, shared in the same way."""

    @abstractmethod
    def measure_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """The norm of whole gradients, of which each process may have a part."""

    @abstractmethod
    def agree(self, flag: Tensor) -> None:
        """Set a flag about gradients to 1 if it is 1 in any process."""

    @abstractmethod
    def end_evaluation(self, model: nn.Module) -> None:
        """Free what forward passes of a model without a backward pass have left."""


@final
class Ddp(Strategy):
    """Every process has the whole model; gradients are averaged in the backward pass.

    The numbers of a step travel as the gradient of a parameter of our own, in the same buckets:
    they cost no collective.
    """

    def __init__(self, world: World, *, find_unused: bool = False) -> None:
        self._world = world
        self._find_unused = find_unused
        self._shared: nn.Module | None = None
        self._key: object = None
        self._numbers: nn.Parameter | None = None
        self._kept: Tensor | None = None
        self._others: list[nn.Parameter] = []
        self._was_called = False

    @override
    def share(self, model: nn.Module, others: Sequence[nn.Parameter], *, carries: bool) -> None:
        # With unused parameters, DDP looks for the used ones in the output of the model.
        carries = carries and not self._find_unused
        trained = [id(one) for one in model.parameters() if one.requires_grad]
        key = (id(model), trained, [id(one) for one in others if one.requires_grad], carries)
        if key == self._key:
            return
        self._key = key
        inside = () if self._find_unused else others
        self._others = [] if not self._find_unused else list(others)
        wrapped = _DdpModule(model, inside, _make_sums_parameter(model) if carries else None)
        self._numbers = wrapped.shared_numbers
        if self._numbers is not None:
            self._gradient = torch.zeros_like(self._numbers, requires_grad=False)
        self._shared = self._wrap(wrapped)
        self._shared.register_forward_pre_hook(self._note_call)

    @property
    @override
    def trained_model(self) -> nn.Module:
        assert self._shared is not None
        return self._shared

    @override
    def accumulating(self) -> AbstractContextManager[Any]:
        shared: Any = self._shared
        return shared.no_sync()  # type: ignore[no-any-return]  # torch has no types here

    @override
    def carry(self, numbers: Tensor) -> None:
        if not self._was_called:
            raise TaskError(_MODEL_NOT_CALLED)
        self._was_called = False
        if self._numbers is None:
            self._kept = numbers if self._kept is None else self._kept + numbers
            return
        # A backward pass of its own: a function in that of the loss would cost three times as much.
        self._gradient[: len(numbers)].copy_(numbers)
        torch.autograd.backward(self._numbers, self._gradient)

    @override
    def read_sums(self) -> Tensor:
        if self._numbers is not None:
            sums = self._numbers.grad
            assert sums is not None
            self._numbers.grad = None
            return sums
        kept, self._kept = self._kept, None
        assert kept is not None
        gradients = [one.grad for one in self._others if one.grad is not None]
        return self.reduce(gradients, kept)

    @override
    def reduce(self, gradients: Sequence[Tensor], numbers: Tensor) -> Tensor:
        average_flat((numbers, *gradients), self._world)
        return numbers

    @override
    def share_another(self, model: nn.Module) -> nn.Module:
        return self._wrap(model) if any(p.requires_grad for p in model.parameters()) else model

    @override
    def measure_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        return get_total_norm(gradients)

    @override
    def agree(self, flag: Tensor) -> None:
        pass  # each process has whole gradients

    @override
    def end_evaluation(self, model: nn.Module) -> None:
        pass

    def _note_call(self, shared: nn.Module, inputs: object) -> None:
        self._was_called = True

    def _wrap(self, module: nn.Module) -> nn.Module:
        # Without device ids DDP leaves inputs alone, also those of the user's own classes.
        return DistributedDataParallel(
            module, find_unused_parameters=self._find_unused, gradient_as_bucket_view=True
        )


@final
class NoStrategy(Strategy):
    """One process: the model is used as it is."""

    def __init__(self) -> None:
        self._model: nn.Module | None = None
        self._kept: Tensor | None = None

    @override
    def share(self, model: nn.Module, others: Sequence[nn.Parameter], *, carries: bool) -> None:
        self._model = model

    @property
    @override
    def trained_model(self) -> nn.Module:
        assert self._model is not None
        return self._model

    @override
    def accumulating(self) -> AbstractContextManager[Any]:
        return nullcontext()

    @override
    def carry(self, numbers: Tensor) -> None:
        self._kept = numbers if self._kept is None else self._kept + numbers

    @override
    def read_sums(self) -> Tensor:
        kept, self._kept = self._kept, None
        assert kept is not None
        return kept

    @override
    def reduce(self, gradients: Sequence[Tensor], numbers: Tensor) -> Tensor:
        return numbers

    @override
    def share_another(self, model: nn.Module) -> nn.Module:
        return model

    @override
    def measure_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        return get_total_norm(gradients)

    @override
    def agree(self, flag: Tensor) -> None:
        pass

    @override
    def end_evaluation(self, model: nn.Module) -> None:
        pass


@final
class _DdpModule(nn.Module):
    """The module that DDP wraps: the model and all other trained parameters."""

    def __init__(
        self, model: nn.Module, others: Sequence[nn.Parameter], numbers: nn.Parameter | None
    ) -> None:
        super().__init__()
        self.shared_model = model
        self.shared_others = nn.ParameterList(others)
        self.shared_numbers = numbers  # last: DDP reduces the last parameters first

    @override
    def forward(self, *inputs: Any, **named: Any) -> Any:
        """What the model returns."""
        return self.shared_model(*inputs, **named)

    @override
    def __getattr__(self, name: str) -> Any:
        """An attribute of the model, for code that writes ``model.module.width``."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "shared_model":
                raise
            return getattr(self.shared_model, name)

    @override
    def state_dict(self, *args: Any, **options: Any) -> Any:
        """The weights of the model alone, for code that saves ``model.module.state_dict()``."""
        return self.shared_model.state_dict(*args, **options)


def _make_sums_parameter(model: nn.Module) -> nn.Parameter:
    """A parameter whose gradient carries the sums of a step, never in half precision."""
    kinds = [one for one in model.parameters() if one.requires_grad]
    exact = [one for one in kinds if one.dtype in (torch.float32, torch.float64)]
    like = next(iter(exact or kinds), None)
    dtype = exact[0].dtype if exact else torch.float32
    device = None if like is None else like.device
    return nn.Parameter(torch.zeros(MAX_SUMS, dtype=dtype, device=device))
