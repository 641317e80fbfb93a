"""DDP: the task must call the wrapped model, which looks like one that torch has wrapped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import distributed, nn

from epochal.distributed.strategy import Ddp
from epochal.distributed.world import SingleProcess
from epochal.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Net(nn.Linear):
    width = 2


@pytest.fixture
def ddp() -> Iterator[Ddp]:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        made = Ddp(SingleProcess())
        made.share(Net(4, 2), [], carries=True)
        yield made
    finally:
        distributed.destroy_process_group()


def test_loss_without_a_call_of_the_wrapped_model_is_refused(ddp: Ddp) -> None:
    numbers = torch.tensor([1.0, 2.0])
    for call in (lambda x: None, ddp.trained_model.module):
        call(torch.ones(1, 4))
        with pytest.raises(TaskError, match="without calling the model that it received"):
            ddp.carry(numbers)
    loss = ddp.trained_model(torch.ones(1, 4)).sum()
    ddp.carry(numbers)
    loss.backward()
    assert ddp.read_sums()[:2].tolist() == [1.0, 2.0]


def test_module_of_the_wrapped_model_has_attributes_and_weights_of_the_model(ddp: Ddp) -> None:
    module = ddp.trained_model.module
    assert (module.width, module.in_features) == (2, 4)
    assert [*module.state_dict()] == ["weight", "bias"]
    assert [*ddp.trained_model.state_dict()] == ["module.weight", "module.bias"]
    with pytest.raises(AttributeError, match="no attribute 'depth'"):
        _ = module.depth
