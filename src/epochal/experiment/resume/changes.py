"""Finds changes of config, code and data since a run was recorded."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal import durable
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.choices import to_override

if TYPE_CHECKING:
    from epochal.registry.project import Project


@final
class ChangedError(ConfigError):
    """A run cannot be resumed, since its results would change."""


_MAY_CHANGE = (
    "train.for",
    "train.max_time",
    "train.until",
    "log",
    "log.*",
    "record",
    "record.*",
    "checkpoint",
    "checkpoint.*",
    "notify",
    "launch",
    "launch.*",
    "engine.empty_cache_every",
    "engine.strategy",
    "engine.fsdp_wrap",
    "engine.fsdp_reshard",
    "engine.fsdp_offload",
    "engine.tensor_*",
    "data.*workers",
    "data.*prefetch*",
    "data.*pin_memory",
    "init_from",
    "init_from.*",
    "project",
    "tag",
    "desc",
    "env",
)
"""Keys that may change when a run is resumed; all others decide what is computed."""

_FORMER_DEFAULTS = {"train.eval_every": ("1ep", "auto"), "train.eval_loss": (False, None)}
"""Defaults of version 0.1 and current ones; a record of that version may resume with these."""

_PASSIVE_HOOKS = ("banner", "console", "recording", "timereport", "finalweights", "profiler")
_UNRECORDED = ("init_from", "record")
_ABSENT = "(nothing)"
_MAX_LISTED = 12
Value = Any  # values of a config have no narrower type


@final
@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs."""

    key: str
    before: Value
    after: Value
    may_change: bool = False
    """Whether it may change when a run is resumed."""

    @override
    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.before)} -> {_shown(self.after)}"


def _shown(value: Value) -> str:
    text = value if value == _ABSENT else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def find_config_changes(before: Mapping[str, Value], after: Mapping[str, Value]) -> list[Change]:
    """The keys of two expanded configs whose values differ."""
    return list(_compare(before, after, ""))


def _compare(
    before: Mapping[str, Value], after: Mapping[str, Value], prefix: str
) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *after)):
        key = f"{prefix}{name}"
        old, new = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _compare(old, new, f"{key}.")
        elif not _is_same(old, new):
            may_change = any(fnmatchcase(key, pattern) for pattern in _MAY_CHANGE)
            may_change |= (old, new) == _FORMER_DEFAULTS.get(key)
            if key == "hooks":
                may_change = _is_same(_influential_hooks(old), _influential_hooks(new))
            yield Change(key, old, new, may_change)


def _is_same(old: Value, new: Value) -> bool:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return old.keys() == new.keys() and all(_is_same(old[key], new[key]) for key in old)
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return len(old) == len(new) and all(map(_is_same, old, new))
    if isinstance(old, float) and isinstance(new, float):
        return old == new or (old != old and new != new)
    return isinstance(old, bool) == isinstance(new, bool) and bool(old == new)


def _influential_hooks(hooks: Value) -> list[Value]:
    """The hooks that may change what is computed, not only what is shown."""
    entries = hooks if isinstance(hooks, list | tuple) else ()
    return [entry for entry in entries if _type_of(entry) not in _PASSIVE_HOOKS]


def _type_of(entry: Value) -> str:
    named = entry.get("type") if isinstance(entry, Mapping) else entry
    return str(named).rpartition(".")[2].lower().replace("_", "")


def changes_to_overrides(changes: Sequence[Change]) -> tuple[str, ...]:
    """The changes as overrides, which turn the old config into the new one."""
    return tuple(
        to_override(change.key, "$delete" if change.after == _ABSENT else change.after)
        for change in changes
        if change.key.partition(".")[0] not in _UNRECORDED
    )


def refuse_changes(where: object, found: Sequence[Change]) -> None:
    """Refuse to resume a run whose results would change."""
    wrong = [change for change in found if not change.may_change]
    if not wrong:
        return
    lines = [str(change) for change in wrong[:_MAX_LISTED]]
    if len(wrong) > _MAX_LISTED:
        lines.append(f"and {len(wrong) - _MAX_LISTED} more")
    what = "cannot be resumed as the same run, since this has changed:\n    " + "\n    ".join(lines)
    hint = "undo the changes, or resume with them: --allow-changed"
    raise ChangedError(Problem(str(where), what, hint=hint))


_ROWS = 16
_DIGITS = 16
_GONE = "(no such file)"


def digest_config(values: Mapping[str, Any]) -> str:
    """A digest of an expanded config."""
    return _digest(durable.encode_json(values))


def digest_code(project: Project) -> dict[str, str]:
    """A digest of each of the project's files that is imported, by path in the project."""
    found = {}
    for path in _imported_files(project.code_dir.absolute()):
        name = _name_in(path, project.code_dir.absolute())
        content = None if name is None else _read(path)
        if name is not None and content is not None:
            found[name] = _digest(content)
    return dict(sorted(found.items()))


def find_code_changes(recorded: Mapping[str, str], project: Project) -> list[Change]:
    """The recorded files that have changed; imports nothing."""
    changes = []
    for name, before in recorded.items():
        content = _read(project.code_dir / name)
        after = _GONE if content is None else _digest(content)
        if after != before:
            changes.append(Change(f"code {name}", before, after))
    return changes


def _imported_files(folder: Path) -> Iterator[Path]:
    """The imported files below a folder."""
    inside = f"{folder}{os.sep}"
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py"):
            continue
        if not file.startswith(inside) and file.startswith(os.sep):  # quick: there are thousands
            continue
        if name.partition(".")[0] != "epochal":
            yield Path(file).absolute()


def _name_in(path: Path, folder: Path) -> str | None:
    """The path below a folder; None for files that are not the project's."""
    try:
        inner = path.relative_to(folder)
    except ValueError:
        return None
    if "site-packages" in inner.parts or any(part[0] == "." for part in inner.parts):
        return None
    # A project may be below the environment, such as /usr/src/app below /usr.
    environment = Path(sys.prefix)
    is_installed = environment.is_relative_to(folder) and path.is_relative_to(environment)
    return None if is_installed else inner.as_posix()


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def fingerprint_data(loader: object) -> dict[str, Any]:
    """The type and length of a loader's data, and a digest of some rows of tensors in memory.

    Datasets are not indexed: that may be slow, or draw random numbers.
    """
    dataset = getattr(loader, "dataset", loader)
    facts: dict[str, Any] = {"type": type(dataset).__name__}
    if isinstance(dataset, Sized):
        with suppress(TypeError, NotImplementedError):  # an iterable dataset may have none
            facts["length"] = len(dataset)
    content = hashlib.sha256()
    if _add_content(content, dataset):
        facts["content"] = content.hexdigest()[:_DIGITS]
    return facts


def find_data_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """The differences between two fingerprints in what both contain."""
    return [
        Change(f"training data, {name}", before[name], after[name])
        for name in before
        if name in after and before[name] != after[name]
    ]


def _add_content(digest: hashlib._Hash, dataset: object) -> bool:
    """Add rows of tensors in memory, also those of subsets and concatenated datasets."""
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
