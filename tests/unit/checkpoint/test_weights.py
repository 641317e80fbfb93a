"""Tests of epochal.checkpoint.weights."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file
from torch import Tensor, nn

from epochal import durable
from epochal.checkpoint import WeightMismatch, apply_tensors, load_weights, save_weights
from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path


def filled(shape: tuple[int, ...] | tuple[()], dtype: torch.dtype) -> Tensor:
    numbers = torch.arange(int(torch.tensor(shape).prod()) if shape else 1, dtype=torch.float64)
    return (numbers % 2).reshape(shape).to(dtype)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(3, 3, bias=False)
        self.decoder = nn.Linear(3, 3)
        self.decoder.weight = self.encoder.weight


class Everything(nn.Module):
    """Tensors of every awkward kind."""

    def __init__(self) -> None:
        super().__init__()
        self.brief = nn.Parameter(torch.randn(4, 2).to(torch.bfloat16))
        self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs
        self.turned = nn.Parameter(torch.randn(2, 5, dtype=torch.float64).t())
        self.number = nn.Parameter(torch.tensor(1.5))
        self.nothing = nn.Parameter(torch.empty(0, 3))
        self.nothing_too = nn.Parameter(torch.empty(0, 3))
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("count", torch.tensor(2**40 + 1))
        self.register_buffer("slice", torch.arange(10)[2:8:2])
        self.register_buffer("scratch", torch.zeros(3), persistent=False)
        self.norm = nn.BatchNorm2d(4)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weights.safetensors"


def apply_weights(model: nn.Module, path: Path, *, strict: bool = True) -> WeightMismatch:
    return apply_tensors(model, load_weights(path), path, strict=strict)


def assert_equal(left: nn.Module, right: nn.Module) -> None:
    ours, theirs = left.state_dict(), right.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype, name
        assert torch.equal(tensor, theirs[name]), name


def test_every_kind_of_tensor_survives_a_round_trip(path: Path) -> None:
    model, other = Everything(), Everything()
    other.mask.zero_()
    save_weights(path, model)
    assert apply_weights(other, path) == WeightMismatch()
    assert_equal(model, other)
    assert other.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert not other.turned.is_contiguous()


def test_the_safetensors_library_reads_the_file(path: Path) -> None:
    model = Everything()
    save_weights(path, model)
    theirs, ours = load_file(path), load_weights(path)
    assert theirs.keys() == ours.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(theirs[name], tensor), name
        assert ours[name].dtype == theirs[name].dtype == tensor.dtype
        assert ours[name].shape == tensor.shape


def test_every_dtype_and_shape_is_stored_bit_for_bit(path: Path) -> None:
    for dtype in [
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.uint16, torch.uint32, torch.uint64, torch.complex64),
        *(torch.float8_e4m3fn, torch.float8_e5m2),
    ]:
        for shape in [(), (0,), (3,), (2, 0, 1), (2, 3)]:
            model = nn.Module()
            model.register_buffer("x", filled(shape, dtype))
            save_weights(path, model)
            stored = load_weights(path)["x"]
            assert (stored.dtype, stored.shape) == (dtype, model.x.shape)  # type: ignore[union-attr]  # a buffer
            bits = [
                t.reshape(-1).view(torch.uint8).tolist() for t in (stored, model.get_buffer("x"))
            ]
            assert bits[0] == bits[1]


def test_special_values_keep_their_bits(path: Path) -> None:
    model = nn.Module()
    patterns = [0x7FC00001, 0x7F800000, 0x80000000, 0x00000001]
    bits = torch.tensor(patterns, dtype=torch.int64).to(torch.uint32).view(torch.float32)
    model.register_buffer("x", bits)
    save_weights(path, model)
    assert load_weights(path)["x"].view(torch.uint32).tolist() == patterns


def test_a_tensor_and_its_conjugate_are_stored_separately(path: Path) -> None:
    model, value = nn.Module(), torch.tensor([1 + 2j])
    model.register_buffer("x", value)
    model.register_buffer("y", value.conj())
    save_weights(path, model)
    assert load_weights(path)["y"].tolist() == [1 - 2j]


def test_expanded_tensor_is_saved_whole_and_refused_as_a_target(path: Path) -> None:
    model = nn.Module()
    model.register_buffer("x", torch.tensor([1.0, 2.0]).expand(3, 2))
    save_weights(path, model)
    assert load_weights(path)["x"].tolist() == [[1.0, 2.0]] * 3
    with pytest.raises(CheckpointError, match=r"the model cannot load its weights\n"):
        apply_weights(model, path)


def test_files_are_reproducible_and_have_metadata(path: Path, tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    digest = save_weights(path, model, metadata={"step": "12"})
    assert digest == save_weights(tmp_path / "again", model, metadata={"step": "12"})
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"format": "pt", "step": "12"}
    load_weights(path)["weight"].zero_()
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_tied_weights_are_stored_once_and_stay_tied(path: Path) -> None:
    model, other = Tied(), Tied()
    save_weights(path, model)
    assert sorted(load_file(path)) == ["decoder.bias", "encoder.weight"]
    loaded = load_weights(path)
    assert loaded["decoder.weight"] is loaded["encoder.weight"]
    assert apply_weights(other, path) == WeightMismatch()
    assert_equal(model, other)
    assert other.decoder.weight is other.encoder.weight
    Tied().load_state_dict(load_weights(path), strict=True)
    load_model(Tied(), path, strict=True)


def test_a_tied_model_accepts_one_name_and_refuses_different_tensors(path: Path) -> None:
    model, other = Tied(), Tied()
    save_file({"decoder.weight": model.decoder.weight, "decoder.bias": model.decoder.bias}, path)
    assert apply_weights(other, path) == WeightMismatch()
    assert_equal(model, other)
    tensors = {"encoder.weight": torch.zeros(3, 3), "decoder.weight": torch.ones(3, 3)}
    save_file({**tensors, "decoder.bias": torch.zeros(3)}, path)
    with pytest.raises(CheckpointError, match=r"decoder\.weight \(shared with encoder\.weight in"):
        apply_weights(Tied(), path)


def test_untied_model_takes_a_tied_file(path: Path) -> None:
    untied = Tied()
    untied.decoder.weight = nn.Parameter(torch.zeros(3, 3))
    model = Tied()
    save_weights(path, model)
    apply_weights(untied, path)
    assert torch.equal(untied.decoder.weight, model.encoder.weight)


def test_different_views_of_one_memory_are_stored_separately(path: Path) -> None:
    model = nn.Module()
    memory = torch.arange(6.0)
    model.register_buffer("whole", memory)
    model.register_buffer("part", memory[:3])
    model.register_buffer("turned", memory.view(2, 3).t())
    save_weights(path, model)
    assert load_weights(path)["part"].tolist() == [0, 1, 2]
    assert load_weights(path)["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_tensors_are_converted_to_the_dtype_of_the_model(path: Path) -> None:
    save_weights(path, nn.Linear(2, 2).to(torch.bfloat16))
    model = nn.Linear(2, 2)
    apply_weights(model, path)
    assert model.weight.dtype == torch.float32


class Wrapper(nn.Module):
    def __init__(self, name: str, inner: nn.Module) -> None:
        super().__init__()
        self.add_module(name, inner)


def test_prefixes_of_wrappers_do_not_matter(path: Path) -> None:
    for saved in ["", "module", "_orig_mod"]:
        for wanted in ["", "module", "_orig_mod"]:
            inner, other = nn.Linear(2, 2), nn.Linear(2, 2)
            save_weights(path, Wrapper(saved, inner) if saved else inner)
            assert (
                apply_weights(Wrapper(wanted, other) if wanted else other, path) == WeightMismatch()
            )
            assert_equal(inner, other)


def test_names_are_saved_without_the_wrappers(path: Path) -> None:
    inner = nn.Sequential(Wrapper("_orig_mod", nn.Linear(2, 2)))
    save_weights(path, nn.DataParallel(inner))
    assert sorted(load_file(path)) == ["0.bias", "0.weight"]


def test_a_submodule_called_module_is_no_wrapper(path: Path) -> None:
    model, other = Wrapper("module", nn.Linear(2, 2)), Wrapper("module", nn.Linear(2, 2))
    model.register_buffer("scale", torch.ones(1))
    other.register_buffer("scale", torch.zeros(1))
    save_weights(path, model)
    apply_weights(other, path)
    assert_equal(model, other)


def test_missing_and_unexpected_names_are_listed(path: Path) -> None:
    save_weights(path, nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False)))
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(CheckpointError) as caught:
        apply_weights(model, path)
    assert str(caught.value).splitlines() == [
        f"{path}: does not fit the model",
        "  missing in the file: 1.bias",
        "  not in the model: 0.bias",
        "  name the file of this model, or load what fits with strict: false",
    ]
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), "a refused file changed the model"


def test_long_lists_of_names_are_cut(path: Path) -> None:
    save_weights(path, nn.Linear(1, 1))
    with pytest.raises(CheckpointError, match=r"missing in the file: 0\.weight, .* and 14 more\n"):
        apply_weights(nn.Sequential(*(nn.Linear(1, 1) for _ in range(12))), path)


def test_matching_names_are_loaded_when_not_strict(path: Path) -> None:
    saved = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False))
    save_weights(path, saved)
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2))
    assert apply_weights(model, path, strict=False) == WeightMismatch(
        missing=("1.bias",), unexpected=("0.bias",)
    )
    assert torch.equal(model[0].weight, saved[0].weight)
    with pytest.raises(CheckpointError, match=r"missing in the file: encoder\.weight"):
        apply_weights(Tied(), path, strict=False)


@pytest.mark.parametrize("strict", [True, False])
def test_different_shapes_are_refused(path: Path, strict: bool) -> None:
    save_weights(path, nn.Linear(2, 3))
    with pytest.raises(
        CheckpointError,
        match=r"differs: weight \(float \(3, 2\) in the file, float \(4, 2\) in the model\), bias"
        r".*\n  name the file of this model, or leave these out: exclude: \['weight', 'bias'\]",
    ):
        apply_weights(nn.Linear(2, 4), path, strict=strict)


def test_floats_are_not_loaded_into_integers(path: Path) -> None:
    save_file({"n": torch.tensor([1.5])}, path)
    model = nn.Module()
    model.register_buffer("n", torch.tensor([1]))
    with pytest.raises(CheckpointError, match=r"n \(float \(1,\) in the file, integer \(1,\) in"):
        apply_weights(model, path)


def test_model_without_weights_is_saved_and_loaded(path: Path) -> None:
    save_weights(path, nn.ReLU())
    assert load_weights(path) == {}
    assert apply_weights(nn.ReLU(), path) == WeightMismatch()


def test_a_missing_file_and_a_folder_are_refused(path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"weights\.safetensors: no such file\n  `ls "):
        load_weights(path)
    with pytest.raises(CheckpointError, match="no such file"):
        apply_weights(nn.Linear(2, 2), path, strict=False)
    with pytest.raises(CheckpointError, match=r"it is a folder\n  name a \.safetensors file in it"):
        load_weights(path.parent)


def test_truncated_file_is_an_error_at_every_length(path: Path) -> None:
    save_weights(path, Tied())
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(
            CheckpointError, match=r"not a readable .*\n  use another copy, or save"
        ):
            load_weights(path)


def header(entries: object, data: bytes = b"") -> bytes:
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + data


F32 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
HOSTILE = {
    "trailing bytes": header({"a": F32}, bytes(5)),
    "huge header": (2**63).to_bytes(8, "little") + b"{}",
    "not json": (4).to_bytes(8, "little") + b"{{{{",
    "a list": header([]),
    "overlap": header({"a": F32, "b": F32}, bytes(4)),
    "hole": header({"a": {**F32, "data_offsets": [4, 8]}}, bytes(8)),
    "backwards": header({"a": {**F32, "data_offsets": [4, 0]}}, bytes(4)),
    "negative": header({"a": {**F32, "data_offsets": [-4, 0]}}, bytes(4)),
    "wrong shape": header({"a": {**F32, "shape": [2]}}, bytes(4)),
    "endless shape": header({"a": {**F32, "shape": [2**62, 2**62]}}, bytes(4)),
    "unknown dtype": header({"a": {**F32, "dtype": "PICKLE"}}, bytes(4)),
    "aliases of nothing": header(
        {"a": F32, "__metadata__": {"epochal.aliases": '{"b": "c"}'}}, bytes(4)
    ),
    "aliases not json": header({"a": F32, "__metadata__": {"epochal.aliases": "{"}}, bytes(4)),
    "aliases a list": header({"a": F32, "__metadata__": {"epochal.aliases": "[1]"}}, bytes(4)),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_files_are_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"weights\.safetensors: (not a readable|damaged)"):
        load_weights(path)


def test_any_changed_header_byte_is_an_error_or_another_valid_file(path: Path) -> None:
    save_weights(path, nn.Linear(1, 1))
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    for position in range(8 + size):
        changed = bytearray(data)
        changed[position] ^= 0x04
        path.write_bytes(changed)
        with contextlib.suppress(CheckpointError):  # nothing else may come out of it
            load_weights(path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_failed_save_keeps_the_old_weights(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    model = nn.Linear(2, 2)
    save_weights(path, model)
    before = path.read_bytes()
    monkeypatch.setattr(
        durable.system, "operations", dataclasses.replace(durable.system.operations, write=fail)
    )
    with pytest.raises(CheckpointError, match=r"weights\.safetensors: cannot be written"):
        save_weights(path, nn.Linear(2, 2))
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


class Extra(nn.Linear):
    def get_extra_state(self) -> object:
        return {"calls": 3}


def test_state_that_is_no_tensor_is_refused_by_name(path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'0\._extra_state' is a dict, and weights are ten"):
        save_weights(path, nn.Sequential(Extra(1, 1)))
    assert not path.exists()


def test_unsupported_tensors_are_refused_with_their_names(path: Path) -> None:
    for tensor, what in (
        (torch.empty(2, device="meta"), r"without values \(meta\)"),
        (torch.zeros(2, dtype=torch.complex128), r"torch\.complex128"),
        (torch.eye(2).to_sparse(), r".*sparse.*\n  convert it"),
    ):
        model = nn.Module()
        model.register_buffer("x", tensor)
        with pytest.raises(CheckpointError, match=f"'x' cannot be stored: {what}"):
            save_weights(path, model)


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d(), nn.Linear(2, 1))


def test_weights_are_loaded_into_a_lazy_model(tmp_path: Path) -> None:
    used, fresh = lazy(), lazy()
    used(torch.ones(4, 3))
    save_weights(tmp_path / "a.safetensors", used)
    assert apply_weights(fresh, tmp_path / "a.safetensors") == WeightMismatch()
    assert torch.equal(fresh[0].weight, used[0].weight)


def test_uninitialised_tensors_are_not_saved_and_not_missing(tmp_path: Path) -> None:
    save_weights(tmp_path / "a.safetensors", lazy())
    assert set(load_weights(tmp_path / "a.safetensors")) >= {"2.weight", "2.bias"}
    assert "0.weight" not in load_weights(tmp_path / "a.safetensors")
    assert apply_weights(lazy(), tmp_path / "a.safetensors") == WeightMismatch()
