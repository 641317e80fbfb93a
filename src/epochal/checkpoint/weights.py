"""Saves and loads the weights of a model, from a file, a checkpoint or a run."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from epochal import durable
from epochal.checkpoint.checkpoint_folder import read_caches, read_checkpoint
from epochal.checkpoint.finite import are_finite
from epochal.checkpoint.tensor_storage import SAFETENSORS_DTYPES, get_tensor_bytes
from epochal.checkpoint.torch_file import is_torch_file, load_torch_file
from epochal.distributed.sharded_tensor import gather_whole
from epochal.durable.remote import RemoteError, fetch, is_url, to_local
from epochal.errors import CheckpointError
from epochal.records.folder.checkpoint_manifests import MANIFEST_FILE, find_newest_checkpoint
from epochal.records.folder.folder import CHECKPOINTS_DIR
from epochal.records.layout.os_errors import raising_record_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

_ALIASES = "epochal.aliases"
_MAX_LISTED = 10


@final
@dataclass(frozen=True, slots=True)
class WeightMismatch:
    """Names that only the model or only the file has."""

    missing: tuple[str, ...] = ()
    """In the model only; their values are unchanged."""

    unexpected: tuple[str, ...] = ()
    """In the file only; they were not used."""

    num_loaded: int = field(default=0, compare=False)
    """How many names both have."""


def save_weights(
    path: Path,
    model: nn.Module | Mapping[str, Tensor],
    *,
    metadata: Mapping[str, str] | None = None,
) -> str:
    """Write every parameter and persistent buffer to ``path``; returns the file's SHA-256.

    A tensor with several names is stored once; uninitialised ones are left out. Names are those
    of the model without wrappers of ``torch.compile`` or data parallelism. ``model`` may also be
    what ``gather_weights`` returned.
    """
    tensors = _named_tensors(path, model) if isinstance(model, nn.Module) else dict(model)
    aliases = _find_aliases(tensors)
    notes = {**(metadata or {}), **({_ALIASES: json.dumps(aliases)} if aliases else {})}
    blobs = {
        name: _to_blob(path, name, tensor)
        for name, tensor in tensors.items()
        if name not in aliases
    }
    with raising_record_errors(CheckpointError):
        return durable.write_safetensors(path, blobs, {"format": "pt", **notes})


def gather_weights(model: nn.Module, *, is_main: bool) -> dict[str, Tensor]:
    """Every parameter and persistent buffer of a model whose parameters are in parts, as a whole.

    All processes must call it together; it is empty in all but the main one. The whole model has to
    fit into the host memory of that one, and the largest parameter into the memory of each device.
    """
    tied: dict[int, Tensor] = {}
    owners = {name: id(one) for name, one in model.named_parameters(remove_duplicate=False)}
    found: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        owner = owners.get(name, id(value))
        whole = tied.get(owner)
        if whole is None:
            whole = tied[owner] = _to_host(gather_whole(value), is_main=is_main)
        if is_main:
            found[_strip_compile_prefix(name)] = whole
    return found


def _to_host(tensor: Tensor, *, is_main: bool) -> Tensor:
    return tensor.detach().cpu() if is_main else torch.empty(0)


def load_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or of ``torch.save``, on the CPU, by name.

    Names of tied weights share one tensor.
    """
    from safetensors import SafetensorError, safe_open

    try:
        durable.require_regular(path, follow=True)  # model hubs link their files
        if is_torch_file(path):
            return load_torch_file(path)
        with safe_open(path, framework="pt") as file:
            names: list[str] = file.keys()
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in names}
            metadata: dict[str, str] = file.metadata() or {}
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path}: no such file\n  `ls {path.parent}` lists the files there"
        ) from error
    except (SafetensorError, OSError, ValueError) as error:
        raise _explain_unreadable(path, error) from error
    for name, stored in _read_aliases(path, metadata).items():
        if stored not in tensors:
            raise CheckpointError(
                f"{path}: damaged: {name!r} refers to {stored!r}, which is missing"
            )
        tensors[name] = tensors[stored]
    return tensors


def apply_tensors(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    source: Path,
    *,
    strict: bool = True,
    exclude: Sequence[str] = (),
) -> WeightMismatch:
    """Load tensors into ``model``, all or none; dtypes and devices are the model's.

    Prefixes that wrappers add to names are ignored on both sides.

    Args:
        model: The model.
        tensors: The weights by name.
        source: Where they came from, for messages.
        strict: Whether all names must match. Otherwise mismatches are returned; shapes must agree
            in any case, and at least one name must match.
        exclude: Patterns of names to skip, such as ``head.*``.
    """
    wanted = {
        name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)
    }
    found = _match_names(wanted, tensors)
    _require_matches(source, exclude, {*wanted, *found})
    found = {name: one for name, one in found.items() if not _is_excluded(name, exclude)}
    shared = {name: found[name] for name in wanted if name in found}
    missing = [name for name in _missing(wanted, shared) if not _is_excluded(name, exclude)]
    mismatch = WeightMismatch(
        missing=tuple(missing),
        unexpected=tuple(name for name in found if name not in wanted),
        num_loaded=len(shared),
    )
    conflicts = _conflicts(wanted, shared)
    problems = _list("differs", conflicts)
    if strict or (wanted and not shared):
        problems += _list("missing in the file", mismatch.missing)
        problems += _list("not in the model", mismatch.unexpected)
    if problems:
        problems.append(_hint_to_load([name.partition(" ")[0] for name in conflicts]))
        raise CheckpointError("\n  ".join([f"{source}: does not fit the model", *problems]))
    try:
        model.load_state_dict(shared, strict=False)
    except RuntimeError as error:  # a read-only tensor, or a hook of the model
        raise CheckpointError(f"{source}: the model cannot load its weights\n  {error}") from error
    trained = {name for name, one in model.named_parameters() if one.requires_grad}
    if not are_finite(one for name, one in shared.items() if name in trained):
        logger.warning("%s: some of its weights are not finite", source)
    return mismatch


def _is_excluded(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches a tensor or a module that it is in, as in ``optim.freeze``."""
    own = _strip_compile_prefix(name).removeprefix("module.")
    return any(fnmatchcase(own, one) or fnmatchcase(own, f"{one}.*") for one in patterns)


def _require_matches(source: Path, patterns: Sequence[str], names: set[str]) -> None:
    """Refuse a pattern that matches no name, since it must be a typo."""
    for pattern in patterns:
        if not any(_is_excluded(name, [pattern]) for name in names):
            known = sorted({_strip_compile_prefix(name).partition(".")[0] for name in names})
            hint = f"names begin with {', '.join(known[:_MAX_LISTED])}"
            raise CheckpointError(f"{source}: no name matches exclude: {pattern!r}\n  {hint}")


def _named_tensors(path: Path, model: nn.Module) -> dict[str, Tensor]:
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return _named_tensors(path, model.module)
    tensors: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise CheckpointError(
                f"{path}: {name!r} is a {type(value).__name__}, and weights are tensors only\n"
                "  let get_extra_state return a tensor, or keep the value out of the state dict"
            )
        if not is_lazy(value):
            tensors[_strip_compile_prefix(name)] = value
    return tensors


def replace_tensors(
    tensors: Mapping[str, Tensor], others: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """``tensors`` with those that ``others`` has, under every name of tied ones."""
    known = {_memory_key(tensors[name]): one for name, one in others.items() if name in tensors}
    return {name: known.get(_memory_key(one), one) for name, one in tensors.items()}


def _find_aliases(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    first: dict[object, str] = {}
    aliases = {}
    for name, tensor in tensors.items():
        stored = first.setdefault(_memory_key(tensor), name)
        if stored != name:
            aliases[name] = stored
    return aliases


def _memory_key(tensor: Tensor) -> object:
    if is_lazy(tensor) or not tensor.numel() or tensor.is_meta or tensor.layout != torch.strided:
        return object()  # equal to nothing: there is no memory to share
    layout = (tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg())
    return (tensor.device, tensor.data_ptr(), *layout)


def _to_blob(path: Path, name: str, tensor: Tensor) -> durable.Blob:
    dtype = SAFETENSORS_DTYPES.get(tensor.dtype)
    if dtype is None or tensor.is_meta or tensor.layout != torch.strided:
        kind = "without values (meta)" if tensor.is_meta else f"{tensor.dtype} {tensor.layout}"
        raise CheckpointError(
            f"{path}: {name!r} cannot be stored: {kind}\n"
            "  convert it before saving, such as with .to_dense() or .to(torch.float32)"
        )
    values = tensor.detach().resolve_conj().resolve_neg()
    return durable.Blob(dtype, tuple(tensor.shape), lambda: get_tensor_bytes(values))


def _read_aliases(path: Path, metadata: Mapping[str, str]) -> dict[str, str]:
    try:
        aliases = json.loads(metadata.get(_ALIASES, "{}"))
        return {str(name): str(stored) for name, stored in aliases.items()}
    except (ValueError, AttributeError) as error:
        raise CheckpointError(f"{path}: damaged: {_ALIASES!r} is unreadable") from error


def _explain_unreadable(path: Path, error: Exception) -> CheckpointError:
    hint = "use another copy, or save the weights again"
    reason = str(error).lower()
    if path.is_dir():
        reason, hint = "it is a folder", "name a .safetensors file in it"
    return CheckpointError(f"{path}: not a readable safetensors file: {reason}\n  {hint}")


def _strip_compile_prefix(name: str) -> str:
    return name.replace("_orig_mod.", "")  # added by torch.compile at any depth


def _match_names(wanted: Iterable[str], found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``found`` under the names of the model, ignoring the prefixes of wrappers."""
    own = {_strip_compile_prefix(name): name for name in wanted}
    candidates = [
        {
            own.get(added + _strip_compile_prefix(name).removeprefix(dropped), name): found[name]
            for name in found
        }
        for dropped, added in (("", ""), ("module.", ""), ("", "module."), ("model.", ""))
    ]
    return max(candidates, key=lambda renamed: len(renamed.keys() & set(own.values())))


def _missing(wanted: Mapping[str, Tensor], shared: Mapping[str, Tensor]) -> list[str]:
    # A tied tensor is present if any of its names is.
    filled = {_memory_key(wanted[name]) for name in shared}
    return [
        name
        for name, tensor in wanted.items()
        if name not in shared and _memory_key(tensor) not in filled and not is_lazy(tensor)
    ]


def _hint_to_load(conflicts: Sequence[str]) -> str:
    if not conflicts:
        return "name the file of this model, or load what fits with strict: false"
    modules = [f"{name.rpartition('.')[0]}.*" if "." in name else name for name in conflicts]
    patterns = [*dict.fromkeys(modules)][:_MAX_LISTED]
    return f"name the file of this model, or leave these out: exclude: {patterns}"


def _conflicts(wanted: Mapping[str, Tensor], shared: Mapping[str, Tensor]) -> tuple[str, ...]:
    names = []
    for name, tensor in shared.items():
        if is_lazy(wanted[name]):  # it takes the shape of the loaded tensor
            continue
        here, there = _describe(wanted[name]), _describe(tensor)
        if here != there:
            names.append(f"{name} ({there} in the file, {here} in the model)")
    tied = _find_aliases({name: wanted[name] for name in shared})
    names += [
        f"{name} (shared with {stored} in the model, but not in the file)"
        for name, stored in tied.items()
        if not names and not torch.equal(shared[name], shared[stored])
    ]
    return tuple(names)


def _describe(tensor: Tensor) -> str:
    # Widths of numbers are converted; floats and integers are not.
    is_real = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    return f"{'float' if is_real else 'integer'} {tuple(tensor.shape)}"


def _list(what: str, names: tuple[str, ...]) -> list[str]:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return [f"{what}: {', '.join(names[:_MAX_LISTED])}{more}"] if names else []


FINAL_WEIGHTS_FILE = "final.safetensors"
"""The weights at the end of training."""

AVERAGED_WEIGHTS_FILE = "final-ema.safetensors"
"""The averaged weights, if any."""

Ema = bool | Literal["required"]


def locate_weights(path: str) -> Path:
    """The weights on this machine: a path, or the copy of a file or checkpoint at a URL."""
    if not is_url(path):
        return to_local(path)
    try:
        return fetch(path, marker=MANIFEST_FILE)
    except RemoteError as error:
        raise CheckpointError(f"init_from: {error}") from error


def init_weights(
    model: nn.Module,
    path: Path,
    *,
    exclude: Sequence[str] = (),
    strict: bool = True,
    try_ema: Ema = False,
) -> WeightMismatch:
    """Load the weights at ``path`` into a model, or raise CheckpointError; logs what did not match.

    Args:
        model: The model.
        path: A safetensors file, a file of ``torch.save``, a checkpoint folder, or a run folder.
        exclude: Patterns of names to skip, such as ``head.*``.
        strict: Whether all other names must match.
        try_ema: Use averaged weights if there are any; ``required`` fails without them.
    """
    tensors, source = load_weights_from(path, try_ema=try_ema)
    mismatch = apply_tensors(model, tensors, source, strict=strict, exclude=exclude)
    total = len(model.state_dict())
    logger.info("init_from: %d of %d tensors from %s", mismatch.num_loaded, total, source)
    for what, names in (("kept as built", mismatch.missing), ("not used", mismatch.unexpected)):
        for line in _list(what, names):
            logger.warning("init_from: %s", line)
    return mismatch


def load_weights_from(path: Path, *, try_ema: Ema = False) -> tuple[dict[str, Tensor], Path]:
    """The weights at ``path`` by name, and their file or folder; CheckpointError without any."""
    if not path.is_dir():
        return _read_file(path, try_ema)
    if (path / MANIFEST_FILE).exists():
        return _read_checkpoint(path, try_ema)
    folder = path / CHECKPOINTS_DIR
    if (folder / FINAL_WEIGHTS_FILE).is_file():
        return _read_file(folder / FINAL_WEIGHTS_FILE, try_ema)
    found, damaged = find_newest_checkpoint(folder)
    for damage in damaged:
        logger.warning("%s", damage)
    if found is None:
        raise CheckpointError(
            f"{path}: neither a run that has weights nor a checkpoint\n"
            "  name the folder of a run, one of its checkpoints, or a .safetensors or .pt file"
        )
    return _read_checkpoint(found.path, try_ema)


def load_caches_from(path: Path) -> dict[str, Any]:
    """The caches of the run that wrote the weights at ``path``; empty if it has no checkpoint."""
    if not (path / MANIFEST_FILE).exists():
        found, _ = find_newest_checkpoint(path / CHECKPOINTS_DIR if path.is_dir() else path.parent)
        if found is None:
            return {}
        path = found.path
    return read_caches(path)


def _read_file(path: Path, try_ema: Ema) -> tuple[dict[str, Tensor], Path]:
    averaged = path.with_name(AVERAGED_WEIGHTS_FILE)
    if (
        try_ema
        and path.name == FINAL_WEIGHTS_FILE
        and averaged.is_file()
        and not averaged.is_symlink()
    ):
        return load_weights(averaged), averaged
    tensors = load_weights(path)
    if try_ema and path.name != AVERAGED_WEIGHTS_FILE:
        _report_missing_average(path, try_ema)
    return tensors, path


def _read_checkpoint(path: Path, try_ema: Ema) -> tuple[dict[str, Tensor], Path]:
    state, _ = read_checkpoint(path)
    weights: dict[str, Tensor] = state["model"]["weights"]
    average = state.get("average")
    if try_ema and average:
        weights = replace_tensors(weights, average)
    elif try_ema:
        _report_missing_average(path, try_ema)
    return weights, path


def _report_missing_average(path: Path, try_ema: Ema) -> None:
    if try_ema == "required":
        raise CheckpointError(
            f"{path}: has no averaged weights\n  use the other weights with try_ema: true, or false"
        )
    logger.warning("%s: has no averaged weights; using the ordinary weights", path)
