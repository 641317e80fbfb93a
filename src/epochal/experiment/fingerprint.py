"""What a run was made of, in a few bytes: its config, the code that it imported, its data."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sized
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal import durable
from epochal.experiment.changes import Change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.registry.project import Project

_ROWS = 16
_DIGITS = 16
_GONE = "(no such file)"


def digest_config(values: Mapping[str, Any]) -> str:
    """A digest of an expanded config."""
    return _digest(durable.encode_json(values))


def digest_code(project: Project) -> dict[str, str]:
    """The project's own files that were imported so far, each with a digest of its content."""
    found = {}
    for path in _imported_files(project.dir.absolute()):
        name = _name_in(path, project.dir.absolute())
        content = None if name is None else _read(path)
        if name is not None and content is not None:
            found[name] = _digest(content)
    return dict(sorted(found.items()))


def code_changes(recorded: Mapping[str, str], project: Project) -> list[Change]:
    """The files of a run that are not as they were; imports nothing."""
    changes = []
    for name, before in recorded.items():
        content = _read(project.dir / name)
        after = _GONE if content is None else _digest(content)
        if after != before:
            changes.append(Change(f"code {name}", before, after))
    return changes


def _imported_files(folder: Path) -> Iterator[Path]:
    """The files below a folder that were imported; there are thousands elsewhere."""
    inside = f"{folder}{os.sep}"
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py"):
            continue
        if os.path.isabs(file) and not file.startswith(inside):  # noqa: PTH117 - of thousands
            continue
        if name.partition(".")[0] != "epochal":
            yield Path(file).absolute()


def _name_in(path: Path, folder: Path) -> str | None:
    """The path below a folder; nothing for what is not the project's own."""
    try:
        inner = path.relative_to(folder)
    except ValueError:
        return None
    if "site-packages" in inner.parts or any(part[0] == "." for part in inner.parts):
        return None
    # A project may also lie below an environment, as /usr/src/app does where that is /usr.
    environment = Path(sys.prefix)
    is_installed = environment.is_relative_to(folder) and path.is_relative_to(environment)
    return None if is_installed else inner.as_posix()


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def fingerprint_data(loader: object) -> dict[str, Any]:
    """The length of a loader's data and, of tensors in memory, a digest of some rows.

    Nothing is read through the dataset itself, which may be slow, or draw random numbers.
    """
    dataset = getattr(loader, "dataset", loader)
    facts: dict[str, Any] = {"type": type(dataset).__name__}
    if isinstance(dataset, Sized):
        with suppress(TypeError, NotImplementedError):  # an iterable dataset may not know
            facts["length"] = len(dataset)
    content = hashlib.sha256()
    if _add_content(content, dataset):
        facts["content"] = content.hexdigest()[:_DIGITS]
    return facts


def data_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """What differs between two fingerprints, as far as both know it."""
    return [
        Change(f"training data, {name}", before[name], after[name])
        for name in before
        if name in after and before[name] != after[name]
    ]


def _add_content(digest: hashlib._Hash, dataset: object) -> bool:
    """Take in rows of tensors in memory, also below subsets and joined datasets."""
    tensors = getattr(dataset, "tensors", None)
    if isinstance(tensors, Mapping):
        tensors = tuple(tensors.values())
    if isinstance(tensors, tuple | list) and tensors and all(map(_has_rows, tensors)):
        for tensor in tensors:
            _add_rows(digest, tensor)
        return True
    indices = getattr(dataset, "indices", None)
    if isinstance(indices, list | tuple | range) and all(isinstance(one, int) for one in indices):
        digest.update(durable.encode_json(list(indices)))
    inner = getattr(dataset, "datasets", None)
    inner = list(inner) if isinstance(inner, list | tuple) else [getattr(dataset, "dataset", None)]
    found = [_add_content(digest, one) for one in inner if one is not None]
    return any(found)


def _has_rows(tensor: object) -> bool:
    return hasattr(tensor, "shape") and hasattr(tensor, "dtype") and hasattr(tensor, "__getitem__")


def _add_rows(digest: hashlib._Hash, tensor: Any) -> None:  # noqa: ANN401 - of torch or numpy
    import torch

    digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
    count = len(tensor) if tensor.ndim else 0
    for index in sorted({i * (count - 1) // (_ROWS - 1) for i in range(_ROWS)} if count else ()):
        row = torch.as_tensor(tensor[index]).detach().cpu().contiguous().reshape(-1)
        if row.numel():
            digest.update(row.view(torch.uint8).numpy().tobytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
