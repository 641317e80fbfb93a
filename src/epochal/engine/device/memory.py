"""Memory that is kept for reuse, and explanations of out-of-memory errors."""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from epochal.engine.interfaces.run import Run

_HOST_MEMORY_ERROR = re.compile(
    r"DefaultCPUAllocator: (can't allocate|not enough) memory|[Cc]annot allocate memory \(12\)"
)
_BATCH_VARIABLES = ("microbatches", "batch")
_MAX_SHAPES = 6
_NOTE = "what to change: "
_LARGE_BLOCK_BYTES = 31 * 2**20  # bytes; glibc does not raise its limit for blocks above 32 MiB


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory of the device or the host ran out; torch has no class for the host's."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, RuntimeError) and _HOST_MEMORY_ERROR.search(str(error)):
        return True
    return isinstance(error, MemoryError | torch.OutOfMemoryError)


def is_disk_full(error: BaseException) -> bool:
    """Whether a disk or a quota is full."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        seen = seen.__cause__
    return False


def explain_out_of_memory(run: Run, error: BaseException) -> None:
    """Add notes to an error, once: memory in use, shapes of the batch, what to change."""
    if not is_out_of_memory(error) or _is_explained(error):
        return
    split, found = _find_batch(error)
    rest = len(found) - _MAX_SHAPES
    shapes = ", ".join(found[:_MAX_SHAPES] + [f"{rest} more"] * (rest > 0))
    where = f"in {split} at step {run.step}" + (f", with {shapes}" if shapes else "")
    advice = ", or ".join(_advise(run, split))
    for note in (_describe_memory(run.device), where, _NOTE + advice):
        if note:
            error.add_note(note)


def _is_explained(error: BaseException) -> bool:
    return any(note.startswith(_NOTE) for note in getattr(error, "__notes__", ()))


def _describe_memory(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    peak, reserved = (
        torch.cuda.max_memory_allocated(device),
        torch.cuda.max_memory_reserved(device),
    )
    free, total = torch.cuda.mem_get_info(device)
    return (
        f"tensors took {_gib(peak)} of {_gib(total)} at most; torch had reserved {_gib(reserved)}, "
        f"and {_gib(free)} are free now"
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def _find_batch(error: BaseException) -> tuple[str, list[str]]:
    """The split and the shapes of its batch, from the frames of the error."""
    shapes: list[str] = []
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        if not frame.f_globals.get("__name__", "").startswith("epochal."):
            continue
        for name in _BATCH_VARIABLES:
            shapes = shapes or list(_shapes(frame.f_locals.get(name)))
        split = frame.f_locals.get("split")
        if shapes and isinstance(split, str):
            return split, shapes
    return "train", shapes


def _shapes(batch: object, name: str = "") -> Iterator[str]:
    if isinstance(batch, torch.Tensor):
        size = "x".join(map(str, batch.shape)) or "one number"
        yield f"{name} {size}".strip()
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from _shapes(value, f"{name}.{key}".strip("."))
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from _shapes(value, name)


def _advise(run: Run, split: str) -> Iterator[str]:
    """What would take less memory, the simplest first."""
    accumulate = run.options.optim.accumulate
    if split == "train":
        if run.options.engine.microbatch is None:
            yield "engine.microbatch=auto, which computes the same step in smaller parts"
        else:
            yield f"half the batch size with optim.accumulate={2 * accumulate}"
        if run.device.type == "cuda" and run.options.engine.precision in ("fp32", "tf32"):
            yield "engine.precision=bf16"
        if not run.options.engine.recompute:
            yield "engine.recompute=['LAYERS.*'], which recomputes activations to save memory"
    else:
        yield "a smaller batch size for this split"
    if run.device.type != "cuda":
        yield "fewer loader workers"


def keep_freed_memory() -> None:
    """Let the C library keep host memory that one step frees for the next one.

    glibc returns the end of its heap to the system when it is more than twice as large as the
    largest block freed so far. With tensors of a few megabytes it does so in each step, which then
    gets the same memory back page by page. Freeing one large untouched block raises that limit.
    """
    torch.empty(_LARGE_BLOCK_BYTES, dtype=torch.uint8, device="cpu")


def find_empty_cache(device: torch.device) -> Callable[[], object] | None:
    """The function that frees a device's unused memory; None on the CPU."""
    module = getattr(torch, device.type, None)
    empty: Callable[[], object] | None = getattr(module, "empty_cache", None)
    return empty
