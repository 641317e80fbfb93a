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
    plain, tensors, _ = serialize_tree(tree, "x")
    copies = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    return deserialize_state(json.loads(json.dumps(plain)), copies)


def raw(tensor: Tensor) -> list[int]:
    return list(get_tensor_bytes(tensor))


def test_all_dtypes_keep_their_bits_in_a_supported_dtype() -> None:
    for dtype in ALL_DTYPES:
        data = torch.arange(64, dtype=torch.uint8) % (2 if dtype == torch.bool else 251)
        tensor = data.view(dtype)
        _, tensors, _ = serialize_tree(tensor, "x")
        assert all(stored.dtype in SAFETENSORS_DTYPES for stored in tensors.values()), dtype
        back = again(tensor)
        assert (back.dtype, back.shape) == (dtype, tensor.shape)
        assert raw(back) == raw(tensor), dtype


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


def test_strides_are_restored() -> None:
    for tensor in STRIDED.values():
        back = again(tensor)
        assert back.stride() == tensor.stride()
        assert back.shape == tensor.shape
        assert raw(back) == raw(tensor)


def test_bytes_of_a_tensor_are_in_row_major_order() -> None:
    values = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8)
    assert bytes(get_tensor_bytes(values)) == b"\1\2\3\4"
    assert bytes(get_tensor_bytes(values.t())) == b"\1\3\2\4"
    assert bytes(get_tensor_bytes(values[:0])) == b""
    single = torch.zeros(4)[::2][:1]  # one element with a stride of 2
    assert bytes(get_tensor_bytes(single)) == bytes(4)


def test_only_the_used_memory_is_stored() -> None:
    assert serialize_tree(torch.zeros(1000)[5:8], "x").tensors["x"].shape == (3,)
    assert serialize_tree(torch.ones(1).expand(1000), "x").tensors["x"].numel() == 1


def test_tied_tensors_are_stored_once_and_stay_tied() -> None:
    weight = nn.Parameter(torch.randn(3))
    _, tensors, _ = serialize_tree({"encoder": weight, "decoder": weight.detach()}, "model")
    assert list(tensors) == ["model/encoder"]
    back = again({"encoder": weight, "decoder": weight})
    assert back["encoder"].data_ptr() == back["decoder"].data_ptr()


def test_views_share_memory_again() -> None:
    whole = torch.arange(12.0)
    tree = {"whole": whole, "part": whole[2:5], "turned": whole.view(3, 4).t()}
    back = again(tree)
    back["whole"][3] = 77
    assert back["part"].tolist() == [2, 77, 4]
    assert back["turned"][3, 0] == 77
    assert back["turned"].stride() == (1, 4)


def test_views_of_other_dtypes_share_memory_again() -> None:
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


def test_adjacent_tensors_are_stored_separately() -> None:
    memory = torch.arange(6.0)
    _, tensors, _ = serialize_tree({"a": memory[:3], "b": memory[3:]}, "rnn")
    assert {name: tensor.tolist() for name, tensor in tensors.items()} == {
        "rnn/a": [0, 1, 2],
        "rnn/b": [3, 4, 5],
    }


def test_conjugates_are_stored_by_value() -> None:
    value = torch.tensor([1 + 2j])
    back = again({"a": value, "b": value.conj(), "c": value.imag.neg()})
    assert back["b"].tolist() == [1 - 2j]
    assert back["c"].tolist() == [-2]


def test_colliding_names_are_made_unique() -> None:
    back = again(
        {1: torch.zeros(1), "1": torch.ones(1), "a/b": torch.ones(2), "a": {"b": torch.zeros(2)}}
    )
    assert back[1].tolist() == [0]
    assert back["1"].tolist() == [1]
    assert back["a"]["b"].tolist() == [0, 0]


class Own(Tensor):
    pass


@pytest.mark.filterwarnings("ignore")  # of quantisation
def test_unsupported_tensors_are_refused_with_their_names() -> None:
    quantised = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    for tensor, what in (
        (torch.eye(2).to_sparse(), "layout torch.sparse_coo\n  convert it first, such as with"),
        (torch.ones(2).as_subclass(Own), r"test_tensor_storage\.Own\n  keep a plain tensor"),
        (nn.parameter.UninitializedParameter(), "no size yet\n  run one batch"),
        (quantised, r"a quantised tensor \(torch\.qint8"),
    ):
        with pytest.raises(CheckpointError, match=f"^optim: 0.exp_avg: cannot be kept .*{what}"):
            serialize_tree({0: {"exp_avg": tensor}}, "optim")


def test_copies_are_independent_and_have_no_gradients() -> None:
    tensor = torch.randn(2, 3).t()
    copy = copy_to_host({"a": tensor})["a"]
    before = copy.clone()
    tensor.zero_()
    assert torch.equal(copy, before)
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
def test_any_views_share_memory_again(found: list[Tensor]) -> None:
    back = again(found)
    for tensor, other in zip(found, back, strict=True):
        assert (other.dtype, other.shape) == (tensor.dtype, tensor.shape)
        assert raw(other) == raw(tensor)
        assert other.stride() == tensor.stride() or not tensor.numel()
    if found[0].numel():
        for first in (found[0], back[0]):
            first.fill_(1)
        assert [raw(tensor) for tensor in back] == [raw(tensor) for tensor in found]
