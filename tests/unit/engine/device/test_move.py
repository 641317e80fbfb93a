"""Tests of bringing batches and modules to the run's device and dtype."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from engine.parts import Sums, fit, make_run
from epochal.engine import Task, Train
from epochal.engine.device.move import (
    BatchMover,
    batch_size,
    choose_mover,
    explain_dtype_mismatch,
    keep_batch,
    move_module,
    parse_dtype,
)
from epochal.engine.execute import execute
from epochal.engine.feed.prefetch import prefetch_one
from epochal.errors import ConfigError, TaskError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CPU = torch.device("cpu")
META = torch.device("meta")


class Pair(NamedTuple):
    image: Tensor
    label: Tensor


@dataclass(frozen=True)
class Sample:
    image: Tensor
    name: str


class Graph:
    def __init__(self) -> None:
        self.calls: list[object] = []

    def to(self, device: torch.device) -> Graph:
        self.calls.append(device)
        return self

    def to_dtype(self, dtype: torch.dtype) -> Graph:
        self.calls.append(dtype)
        return self


class Pixels:
    """Can be moved; whether it can be cast is for each test to say."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def to(self, device: torch.device) -> Pixels:
        return Pixels(self.values.to(device))


class CastPixels(Pixels):
    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> Pixels:
        return CastPixels(self.values.to(device, dtype))


class Words(UserDict[str, Tensor]):
    def to(self, device: torch.device, **options: object) -> Words:
        return Words({name: value.to(device) for name, value in self.items()})


def test_on_the_cpu_without_a_dtype_the_batch_is_unchanged() -> None:
    assert choose_mover(CPU, None) is keep_batch
    for batch in ("batch", torch.zeros(2), {"x": torch.zeros(2)}):
        assert keep_batch(batch) is batch
    graph = Graph()
    assert keep_batch(graph) is graph
    assert graph.calls == [CPU], "the class expects it on every device"


def test_every_container_is_moved_and_keeps_its_kind() -> None:
    floats, ints = torch.zeros(2), torch.zeros(2, dtype=torch.int64)
    batch = {
        "list": [floats, "text"],
        "tuple": (floats, 3),
        "named": Pair(floats, ints),
        "data": Sample(floats, "cat"),
        "ordered": OrderedDict(x=floats),
        "user": UserDict(x=floats),
        "frozen": MappingProxyType({"x": floats}),
        "nothing": None,
    }
    moved = choose_mover(META, None)(batch)
    assert moved["list"][0].device == META
    assert moved["list"][1] == "text"
    assert isinstance(moved["tuple"], tuple)
    assert moved["tuple"][1] == 3
    assert isinstance(moved["named"], Pair)
    assert moved["named"].label.device == META
    assert moved["data"].image.device == META
    assert moved["data"].name == "cat"
    assert isinstance(moved["ordered"], OrderedDict)
    assert isinstance(moved["user"], UserDict)
    assert moved["user"]["x"].device == moved["frozen"]["x"].device == META
    assert moved["nothing"] is None
    assert floats.device == batch["ordered"]["x"].device == CPU


def test_floats_are_cast_and_integers_are_not() -> None:
    floats, ints = choose_mover(CPU, torch.float64)(
        [torch.zeros(2), torch.zeros(2, dtype=torch.int32)]
    )
    assert floats.dtype == torch.float64
    assert ints.dtype == torch.int32


def test_objects_with_to_are_asked_and_with_to_dtype_too() -> None:
    graph = Graph()
    assert choose_mover(CPU, torch.float64)(graph) is graph
    assert graph.calls == [CPU, torch.float64]
    assert choose_mover(META, None)(graph).calls[-1] == META


def test_objects_whose_to_takes_a_dtype_are_given_it() -> None:
    for dtype, other in ((torch.float64, torch.float32), (torch.float32, torch.float64)):
        batch = CastPixels(torch.zeros(2, dtype=other))
        assert choose_mover(CPU, dtype)(batch).values.dtype == dtype
    assert choose_mover(META, None)(CastPixels(torch.zeros(2))).values.device == META


def test_packed_sequences_are_cast_as_tensors_are() -> None:
    ints = pack_sequence([torch.zeros(2, dtype=torch.int64)])
    floats = pack_sequence([torch.zeros(2), torch.zeros(1)])
    assert choose_mover(CPU, torch.float64)(ints).data.dtype == torch.int64
    assert choose_mover(CPU, torch.float64)(floats).data.dtype == torch.float64


def test_objects_that_cannot_be_cast_to_float64_are_refused_by_name() -> None:
    what = r"a batch of type Pixels holds torch.float32, .*\n  .*def to_dtype\(self, dtype\)"
    with pytest.raises(TaskError, match=what):
        choose_mover(CPU, torch.float64)(Pixels(torch.zeros(2)))
    with pytest.raises(TaskError, match=r"a batch of type Words holds torch.float32"):
        choose_mover(CPU, torch.float64)(Words(x=torch.zeros(2)))


def test_objects_without_a_float_need_no_cast() -> None:
    ints = torch.zeros(2, dtype=torch.int64)
    assert choose_mover(CPU, torch.float64)(Words(ids=ints))["ids"].dtype == torch.int64
    assert choose_mover(CPU, torch.float32)(Pixels(torch.zeros(2))).values.dtype == torch.float32


def test_predictions_can_leave_their_graph_behind() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    kept = BatchMover(CPU, None, is_detached=True)({"out": parameter * 2})
    assert not kept["out"].requires_grad


def test_the_batch_size_is_that_of_the_first_tensor() -> None:
    for batch, size in [
        (torch.zeros(5, 2), 5),
        (torch.tensor(1.0), None),
        ({"name": "a", "image": torch.zeros(3, 2)}, 3),
        (["text", (torch.zeros(4),)], 4),
        (Sample(torch.zeros(7), "x"), 7),
        ("text", None),
        ([], None),
    ]:
        assert batch_size(batch) == size


def test_dtypes_are_read_by_name() -> None:
    for written, dtype in [(None, None), ("float32", torch.float32), ("float64", torch.float64)]:
        assert parse_dtype(written) == dtype
        assert parse_dtype(dtype) == dtype, written


def test_an_unknown_dtype_is_refused() -> None:
    for written in ["float63", torch.int32]:
        with pytest.raises(ConfigError, match=r"model.dtype: unknown dtype '(float63|int32)'"):
            parse_dtype(written)


def test_a_module_is_placed_with_its_floats_in_the_dtype() -> None:
    module = nn.BatchNorm1d(2)
    placed = move_module(module, CPU, torch.float64)
    assert placed.weight.dtype == torch.float64
    assert placed.num_batches_tracked.dtype == torch.int64
    assert move_module(nn.Linear(1, 1), META, None).weight.device == META


def test_complex_tensors_of_a_module_stay_complex() -> None:
    for dtype in [torch.float32, torch.float64]:
        module = nn.Linear(1, 1)
        values = torch.tensor([1 + 2j])
        module.phase = nn.Parameter(values.clone())
        module.register_buffer("spectrum", values.clone())
        placed = move_module(module, CPU, dtype)
        assert placed.weight.dtype == dtype
        assert torch.equal(placed.phase, values), dtype
        assert torch.equal(placed.spectrum, values), dtype


def test_images_of_floats_are_brought_to_channels_last_and_nothing_else_is() -> None:
    move = choose_mover(CPU, None, channels_last=True)
    image, mask, vector = torch.randn(2, 3, 4, 4), torch.ones(2, 3, 4, 4).bool(), torch.randn(2, 3)
    moved = move([image, mask, vector])
    assert moved[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(moved[0], image)
    assert moved[1].is_contiguous()
    assert moved[2] is vector
    assert move(moved)[0] is moved[0]


def test_a_batch_that_was_moved_is_not_moved_again() -> None:
    move = choose_mover(META, torch.float64)
    moved = move({"x": torch.zeros(2, 3), "label": torch.zeros(2, dtype=torch.int64)})
    again = move(moved)
    assert all(again[name] is moved[name] for name in moved)


def test_weights_of_convolutions_are_placed_with_channels_last() -> None:
    module = nn.ModuleList([nn.Conv2d(3, 4, 2), nn.Conv3d(3, 4, 2), nn.LazyConv2d(4, 2)])
    weights = module[0].weight
    placed = move_module(module, CPU, None, channels_last=True)
    assert placed[0].weight is weights
    assert weights.is_contiguous(memory_format=torch.channels_last)
    assert placed[1].weight.is_contiguous()


class Page(Pixels):
    """Says of itself that it went through page-locked memory."""

    is_locked = False

    def pin_memory(self) -> Page:
        page = Page(self.values)
        page.is_locked = True
        return page

    def to(self, device: torch.device) -> Page:
        return self


def test_objects_that_can_be_pinned_are_asked_to_when_that_helps() -> None:
    assert BatchMover(CPU, None, is_pinned=True)(Page(torch.zeros(2))).is_locked
    assert not BatchMover(CPU, None)(Page(torch.zeros(2))).is_locked


def test_tensors_that_cannot_be_pinned_are_moved_all_the_same() -> None:
    move = BatchMover(META, None, is_pinned=True)
    repeated, sparse = torch.zeros(1).expand(4), torch.zeros(2, 2).to_sparse()
    assert move(repeated).device == move(sparse).device == META
    assert move(torch.zeros(2, device=META)).device == META


def test_a_run_in_float64_is_in_float64_from_batch_to_parameters_defect_5() -> None:
    seen = []

    class Watched(Sums):
        def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
            seen.append(batch[0].dtype)
            return super().batch_forward(model, batch)

    run = make_run(Watched(), setting={"dtype": "float64"}, for_="1ep")
    model = run.model = run.place(run.model)
    fit(run)
    assert set(seen) == {torch.float64}
    assert all(parameter.dtype == torch.float64 for parameter in model.parameters())


def test_a_model_that_gets_floats_of_another_format_is_explained() -> None:
    for model, dtype, shape in (
        (nn.Linear(2, 2), torch.float64, (1, 2)),
        (nn.Conv2d(1, 1, 1), torch.float64, (1, 1, 2, 2)),
        (nn.LSTM(2, 2), torch.float64, (1, 1, 2)),
        (nn.Linear(2, 2).double(), torch.float32, (1, 2)),
    ):
        with pytest.raises((RuntimeError, ValueError)) as caught:
            model(torch.zeros(shape, dtype=dtype))
        explain_dtype_mismatch(model, caught.value)
        expected, got = {torch.float64: ("float32", "float64")}.get(dtype, ("float64", "float32"))
        start = f"the model is {expected} and got {got}, probably from the batch: make {expected} "
        (note,) = caught.value.__notes__
        assert note.startswith(start), model


def test_other_errors_of_torch_are_left_alone() -> None:
    model = nn.Linear(2, 2)
    for batch in (torch.zeros(1, 3), torch.zeros(1, 2, dtype=torch.int64)):
        with pytest.raises(RuntimeError) as caught:
            model(batch)
        explain_dtype_mismatch(model, caught.value)
        assert not hasattr(caught.value, "__notes__")


class Doubles(Sums):
    """Its numbers are float64, and its model float32."""

    def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
        return {"sum": model(batch[0].double())}


def test_a_run_that_fails_by_a_conversion_is_explained() -> None:
    result = execute(make_run(Doubles()), Train())
    assert "the model is float32 and got float64, probably from the batch" in result.traceback


def test_an_object_that_was_moved_ahead_of_its_step_is_not_moved_again() -> None:
    for place in (lambda graph: graph, lambda graph: {"graph": graph}, lambda graph: [graph, 1]):
        graph, move = Graph(), BatchMover(META, None)
        ahead = replace(move, is_pinned=True)
        batch = ahead(place(graph))
        move(move(batch))
        assert graph.calls == [META], batch
        ahead(batch)
        assert graph.calls == [META, META], "a loader that yields it again may have changed it"
        del batch, graph
        assert not move.prefetched, "nothing is kept alive"


class Rows:
    """A batch of a class of its own that counts its moves."""

    def __init__(self) -> None:
        self.values = torch.ones(2, 3)
        self.moves = 0

    def to(self, device: torch.device) -> Rows:
        self.moves += 1
        return self


class RowsTask(Task):
    def __init__(self) -> None:
        self.train_loader = [Rows(), Rows(), Rows()]
        self.val_loader = [Rows()]

    def batch_forward(self, model: nn.Module, batch: Rows) -> dict[str, Tensor]:
        return {"y": model(batch.values)}

    def batch_loss(self, out: dict[str, Tensor], batch: Rows) -> dict[str, tuple[Tensor, int]]:
        return {"loss": (out["y"].mean(), 2)}


class Ahead:
    """Stands in for the prefetcher of CUDA, without its streams."""

    def __init__(self, move: BatchMover) -> None:
        self._move = replace(move, is_pinned=True)

    def __call__(self, batches: Iterable[Rows]) -> Iterator[Rows]:
        return prefetch_one(batches, self._move, lambda: None)


def test_a_run_calls_to_of_each_batch_once_with_and_without_prefetch() -> None:
    for device_type, dtype, is_ahead in (("cpu", None, False), ("cuda", "float32", True)):
        task = RowsTask()
        run = make_run(
            task, nn.Linear(3, 1), setting={"dtype": dtype}, for_="1ep", sanity_batches=0
        )
        if is_ahead:
            assert isinstance(run.feed.move, BatchMover)
            run.feed._prefetcher = Ahead(run.feed.move)
        fit(run)
        moves = [batch.moves for batch in (*task.train_loader, *task.val_loader)]
        assert moves == [1, 1, 1, 1], device_type
