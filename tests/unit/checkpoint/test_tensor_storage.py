"""Tests of epochal.checkpoint.tensor_storage: strides, sharing and element types."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from epochal.checkpoint.serialize import deserialize_state, serialize_tree
from epochal.checkpoint.tensor_storage import SAFETENSORS_DTYPES, copy_to_host, get_tensor_bytes
from epochal.errors import CheckpointError

ALL_DTYPES = sorted(
    {
        value
        for value in vars(torch).values()
        if isinstance(value, torch.dtype)
        and not str(value).startswith(("torch.q", "torch.int", "torch.uint", "torch.bits"))
    }
    | {torch.int8, torch.int16, torch.int32, torch.int64, torch.bits16, torch.int4}
    | {torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bits8},
    key=str,
)


def again(tree: Any) -> Any:
    """The tree after its tensors were written to a file and read."""
    plain, tensors = serialize_tree(tree, "x")
    copies = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    return deserialize_state(json.loads(json.dumps(plain)), copies)


def raw(tensor: Tensor) -> list[int]:
    return list(get_tensor_bytes(tensor))


def test_every_element_type_keeps_its_bits() -> None:
    for dtype in ALL_DTYPES:
        data = torch.arange(64, dtype=torch.uint8) % (2 if dtype == torch.bool else 251)
        tensor = data.view(dtype)
        back = again(tensor)
        assert back.dtype == dtype
        assert back.shape == tensor.shape
        assert raw(back) == raw(tensor)


def test_stored_types_are_those_that_the_format_knows() -> None:
    for dtype in ALL_DTYPES:
        _, tensors = serialize_tree(torch.zeros(16, dtype=torch.uint8).view(dtype), "x")
        assert all(tensor.dtype in SAFETENSORS_DTYPES for tensor in tensors.values())


STRIDED = {
    "contiguous": torch.randn(2, 3),
    "turned": torch.randn(2, 3).t(),
    "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "one channel": torch.randn(2, 1, 4, 5).to(memory_format=torch.channels_last),
    "one pixel": torch.randn(2, 3, 1, 1).to(memory_format=torch.channels_last),
    "channels_last_3d": torch.randn(2, 3, 2, 2, 2).to(memory_format=torch.channels_last_3d),
    "channels_last in double": torch.randn(2, 3, 4, 5).double().permute(0, 3, 1, 2),
    "every other": torch.randn(10)[::2],
    "a column": torch.randn(4, 5)[:, 2],
    "expanded": torch.randn(3, 1).expand(3, 4),
    "a sliding window": torch.randn(10).unfold(0, 3, 1),
    "no dimension": torch.tensor(2.5),
    "nothing": torch.empty(0, 3),
    "nothing, turned": torch.empty(3, 0).t(),
    "complex, turned": torch.randn(2, 3, dtype=torch.complex128).t(),
    "float8, turned": torch.randn(2, 3).to(torch.float8_e8m0fnu).t(),
}


def test_strides_come_back_exactly() -> None:
    for tensor in STRIDED.values():
        back = again(tensor)
        assert back.stride() == tensor.stride()
        assert back.shape == tensor.shape
        assert raw(back) == raw(tensor)


def test_bytes_of_a_tensor_are_those_of_its_values_in_order() -> None:
    values = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8)
    assert bytes(get_tensor_bytes(values)) == b"\1\2\3\4"
    assert bytes(get_tensor_bytes(values.t())) == b"\1\3\2\4"
    assert bytes(get_tensor_bytes(values[:0])) == b""
    assert bytes(get_tensor_bytes(torch.zeros(4)[::2][:1])) == bytes(
        4
    )  # one element, and a stride of 2


def test_slice_of_a_large_tensor_is_stored_alone() -> None:
    _, tensors = serialize_tree(torch.zeros(1000)[5:8], "x")
    assert tensors["x"].shape == (3,)


def test_tied_tensors_are_stored_once_and_stay_tied() -> None:
    weight = nn.Parameter(torch.randn(3))
    _, tensors = serialize_tree({"encoder": weight, "decoder": weight.detach()}, "model")
    assert list(tensors) == ["model/encoder"]
    back = again({"encoder": weight, "decoder": weight})
    assert back["encoder"].data_ptr() == back["decoder"].data_ptr()


def test_view_of_another_tensor_keeps_sharing() -> None:
    whole = torch.arange(12.0)
    tree = {"whole": whole, "part": whole[2:5], "turned": whole.view(3, 4).t()}
    back = again(tree)
    back["whole"][3] = 77
    assert back["part"].tolist() == [2, 77, 4]
    assert back["turned"][3, 0] == 77
    assert back["turned"].stride() == (1, 4)


def test_views_of_other_types_keep_sharing() -> None:
    whole = torch.arange(4.0)
    back = again(
        {
            "whole": whole,
            "bytes": whole.view(torch.uint8)[5:9],
            "half": whole[1:].view(torch.float16),
        }
    )
    back["whole"].zero_()
    assert back["bytes"].tolist() == [0] * 4
    assert back["half"].count_nonzero() == 0
    assert back["bytes"].dtype == torch.uint8


def test_neighbours_in_one_memory_keep_their_own_names() -> None:
    memory = torch.arange(6.0)
    _, tensors = serialize_tree({"a": memory[:3], "b": memory[3:]}, "rnn")
    assert {name: tensor.tolist() for name, tensor in tensors.items()} == {
        "rnn/a": [0, 1, 2],
        "rnn/b": [3, 4, 5],
    }


def test_expanded_tensor_takes_the_room_of_its_memory_only() -> None:
    _, tensors = serialize_tree(torch.ones(1).expand(1000), "x")
    assert tensors["x"].numel() == 1


def test_conjugates_are_stored_by_value() -> None:
    value = torch.tensor([1 + 2j])
    back = again({"a": value, "b": value.conj(), "c": value.imag.neg()})
    assert back["b"].tolist() == [1 - 2j]
    assert back["c"].tolist() == [-2]


def test_names_that_would_collide_are_told_apart() -> None:
    back = again(
        {1: torch.zeros(1), "1": torch.ones(1), "a/b": torch.ones(2), "a": {"b": torch.zeros(2)}}
    )
    assert back[1].tolist() == [0]
    assert back["1"].tolist() == [1]
    assert back["a"]["b"].tolist() == [0, 0]


class Own(Tensor):
    pass


@pytest.mark.parametrize(
    ("tensor", "what"),
    [
        (torch.eye(2).to_sparse(), "layout torch.sparse_coo\n  convert it first, such as with"),
        (torch.ones(2).as_subclass(Own), r"test_tensor_storage\.Own\n  keep a plain tensor"),
        (nn.parameter.UninitializedParameter(), "no size yet\n  run one batch"),
    ],
)
def test_tensors_that_cannot_be_stored_are_refused_by_name(tensor: Tensor, what: str) -> None:
    with pytest.raises(CheckpointError, match=f"^optim: 0.exp_avg: cannot be kept .*{what}"):
        serialize_tree({0: {"exp_avg": tensor}}, "optim")


@pytest.mark.filterwarnings("ignore")
def test_quantised_tensors_are_refused_by_name() -> None:
    tensor = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    with pytest.raises(CheckpointError, match=r"^model: w: .*: a quantised tensor \(torch\.qint8"):
        serialize_tree({"w": tensor}, "model")


def test_copies_in_host_memory_are_apart_from_their_origin() -> None:
    tensor = torch.randn(2, 3).t()
    copy = copy_to_host({"a": tensor})["a"]
    before = copy.clone()
    tensor.zero_()
    assert torch.equal(copy, before)


def test_gradients_are_not_asked_of_what_comes_back() -> None:
    assert not again(nn.Parameter(torch.ones(2))).requires_grad


@st.composite
def views(draw: st.DrawFn) -> list[Tensor]:
    """Several views of one piece of memory: any part, turned, stepped over, of other types."""
    memory = torch.arange(48, dtype=torch.float64)
    found = []
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, 40))
        view = memory[start : draw(st.integers(start, 48)) : draw(st.integers(1, 3))]
        if draw(st.booleans()) and view.stride() == (1,):
            view = view.view(draw(st.sampled_from([torch.float32, torch.uint8, torch.int64])))
        if len(view) % 6 == 0 and len(view) and draw(st.booleans()):
            view = view.view(2, 3, -1).permute(draw(st.permutations([0, 1, 2])))
        found.append(view)
    return found


@settings(max_examples=150, deadline=None)
@given(views())
def test_any_views_of_one_memory_come_back_and_share_what_they_shared(found: list[Tensor]) -> None:
    back = again(found)
    for tensor, other in zip(found, back, strict=True):
        assert (other.dtype, other.shape) == (tensor.dtype, tensor.shape)
        assert raw(other) == raw(tensor)
        assert other.stride() == tensor.stride() or not tensor.numel()
    if found[0].numel():
        for first in (found[0], back[0]):
            first.fill_(1)
        assert [raw(tensor) for tensor in back] == [raw(tensor) for tensor in found]
