from __future__ import annotations

import pytest
import torch

from epochal.components.losses.shapes import require_same_shape
from epochal.errors import TaskError


def test_shapes_that_torch_would_spread_are_refused() -> None:
    require_same_shape("mse", torch.zeros(4, 1), torch.zeros(4, 1))
    message = r"mse got an input of shape \(4, 1\) and a target of shape \(4,\)\n.*unsqueeze"
    with pytest.raises(TaskError, match=message):
        require_same_shape("mse", torch.zeros(4, 1), torch.zeros(4))
