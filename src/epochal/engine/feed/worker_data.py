"""Finds datasets that workers cannot read correctly: they hold a run, or repeat samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from epochal.engine.interfaces.run import Run
from epochal.engine.interfaces.shared_store import Store
from epochal.engine.interfaces.task import Task
from epochal.engine.process.workers import SignalTolerantWorker
from epochal.errors import TaskError

if TYPE_CHECKING:
    from epochal.engine.interfaces.task import Loader

_MAX_DEPTH = 4
_MAX_OBJECTS = 2_000
_MAX_ELEMENTS = 100  # of one list or mapping: rows of data hold no run
_LEAVES = (str, bytes, int, float, type(None), type, ModuleType, Tensor, nn.Module, Task)
_WORKER_INFO = "get_worker_info"


def refuse_captured_run(loader: Loader) -> None:
    """Refuse a loader whose workers would get a run; a forked one would see an old copy of it."""
    if not isinstance(loader, DataLoader) or not loader.num_workers:
        return
    name = type(loader.dataset).__name__
    waiting: list[tuple[str, Any, int]] = [(name, loader.dataset, 0)]
    seen = {id(loader.dataset)}
    for path, one, depth in waiting:
        for step, child in _iter_children(one) if depth < _MAX_DEPTH else ():
            if isinstance(child, Run | Store):
                what = "a run" if isinstance(child, Run) else "the store of a run"
                raise TaskError(
                    f"data: {path}{step} is {what}, which cannot be sent to another process such "
                    "as a loader worker\n"
                    "  read the value that the worker needs before, and keep only that value"
                )
            is_new = id(child) not in seen and len(waiting) < _MAX_OBJECTS
            if is_new and not isinstance(child, _LEAVES):
                seen.add(id(child))
                waiting.append((f"{path}{step}", child, depth + 1))


def _iter_children(value: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - of any kind
    """What an object holds, with the text that leads there."""
    if isinstance(value, Mapping):
        for key, child in islice(value.items(), _MAX_ELEMENTS):
            yield f"[{key!r}]", child
    elif isinstance(value, list | tuple):
        for index, child in enumerate(value[:_MAX_ELEMENTS]):
            yield f"[{index}]", child
    elif isinstance(value, FunctionType):
        names = value.__code__.co_freevars
        for name, cell in zip(names, value.__closure__ or (), strict=False):
            try:
                yield f" with {name}", cell.cell_contents
            except ValueError:  # not set yet
                continue
    elif isinstance(value, partial):
        yield from _iter_children([value.func, *value.args, *value.keywords.values()])
    elif isinstance(value, MethodType):
        yield ".__self__", value.__self__
    else:
        for name, child in getattr(value, "__dict__", {}).items():
            yield f".{name}", child


def find_repeated_samples(loader: Loader) -> str:
    """A warning if each worker seems to read all samples of an iterable dataset; else empty."""
    if not isinstance(loader, DataLoader) or loader.num_workers < 2:
        return ""
    dataset = loader.dataset
    init = loader.worker_init_fn  # it may choose the samples of each worker
    init = init.init if isinstance(init, SignalTolerantWorker) else init
    if not isinstance(dataset, IterableDataset) or init is not None or _splits_by_worker(dataset):
        return ""
    return (
        f"each of the {loader.num_workers} workers yields every sample of "
        f"{type(dataset).__name__}, so a pass has all of them {loader.num_workers} times; let "
        "__iter__ skip those of other workers (torch.utils.data.get_worker_info()), or set "
        "`splits_by_worker = True` on it if it does"
    )


def _splits_by_worker(dataset: Any) -> bool:  # noqa: ANN401 - of any kind
    """Whether a dataset, or one that it reads, says or shows that it asks for the worker."""
    if getattr(dataset, "splits_by_worker", False):
        return True
    own = [kind for kind in type(dataset).__mro__ if kind.__module__.split(".")[0] != "torch"]
    functions = [value for kind in own for value in vars(kind).values()]
    if any(_mentions_worker(one) for one in functions if isinstance(one, FunctionType)):
        return True
    inner = (value for _, value in _iter_children(dataset) if value is not dataset)
    return any(_splits_by_worker(one) for one in inner if isinstance(one, IterableDataset))


def _mentions_worker(function: FunctionType) -> bool:
    """Whether a function, or one of its module that it calls, uses ``get_worker_info``."""
    names = set(_iter_names(function.__code__))
    called = (function.__globals__.get(name) for name in names)
    return _WORKER_INFO in names or any(
        _WORKER_INFO in _iter_names(one.__code__) for one in called if isinstance(one, FunctionType)
    )


def _iter_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _iter_names(constant)
