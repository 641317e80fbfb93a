from __future__ import annotations

import torch
from torch import nn

from epochal.components.average.shadow import Shadow


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def test_copies_start_as_the_float_weights_and_buffers() -> None:
    model = network()
    tensors = Shadow(model).tensors()
    assert "1.num_batches_tracked" not in tensors
    assert tensors.keys() == model.state_dict().keys() - {"1.num_batches_tracked"}
    assert all(torch.equal(one, model.state_dict()[name]) for name, one in tensors.items())
    assert all(one is not model.state_dict()[name] for name, one in tensors.items())


def test_swapping_twice_changes_nothing() -> None:
    model = network()
    shadow = Shadow(model)
    own = model[0].weight.detach().clone()
    for copy in shadow.copies:
        copy.zero_()
    with shadow.swapped():
        assert not model[0].weight.any()
    assert torch.equal(model[0].weight, own)
    assert not any(copy.any() for copy in shadow.copies)


def test_new_weights_are_admitted_and_others_keep_their_copies() -> None:
    model = network()
    shadow = Shadow(model)
    shadow.copies[0].fill_(7)
    model.append(nn.Linear(4, 1))
    shadow.admit(model)
    tensors = shadow.tensors()
    assert torch.equal(tensors["2.weight"], model[2].weight)
    assert (tensors["0.weight"] == 7).all()


def test_copies_can_be_set_to_the_weights() -> None:
    model = network()
    shadow = Shadow(model)
    shadow.copies[0].fill_(7)
    shadow.copy_weights()
    assert torch.equal(shadow.tensors()["0.weight"], model[0].weight)


def test_a_flag_on_the_device_decides_whether_copies_change() -> None:
    model = network()
    shadow = Shadow(model)
    before = {name: one.clone() for name, one in shadow.tensors().items()}
    moved = [one + 1 for one in shadow.copies]
    moved[-1].fill_(torch.nan)  # a buffer, in a step that is skipped
    shadow.choose(moved, torch.ones(()))
    assert all(torch.equal(one, before[name]) for name, one in shadow.tensors().items())
    shadow.choose([one + 1 for one in shadow.copies], torch.zeros(()))
    assert all(torch.equal(one, before[name] + 1) for name, one in shadow.tensors().items())
