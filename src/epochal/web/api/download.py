"""Downloads: the record of a run as one file, and the weights of its checkpoints."""

from __future__ import annotations

import os
import re
import tempfile
from typing import TYPE_CHECKING

from epochal.durable.beneath import open_beneath
from epochal.records.archive import write_archive
from epochal.records.folder.checkpoint_manifests import TENSORS_FILE, find_checkpoints
from epochal.records.folder.folder import CHECKPOINTS_DIR
from epochal.web.site.api_error import ApiError, not_found
from epochal.web.site.route import FileAnswer

if TYPE_CHECKING:
    from epochal.web.site.route import ApiCall
    from epochal.web.site.site import Site

MAX_RECORD_BYTES = 200 << 20
_MAX_FILES = 20_000
_FINAL = "final"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def download_run(site: Site, call: ApiCall) -> FileAnswer:
    """The regular files of a run as .tar.gz, without checkpoints; links are left out."""
    folder = site.folder(call.path["id"])
    output = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed when it was sent
    try:
        write_archive(folder, output, admit=_admit)
    except BaseException:
        output.close()
        raise
    size = output.tell()
    output.seek(0)
    return FileAnswer(output, size, f"{_to_name(folder.name)}.tar.gz")


def _admit(count: int, size: int) -> None:
    if size > MAX_RECORD_BYTES or count >= _MAX_FILES:
        what = f"the record is larger than {MAX_RECORD_BYTES >> 20} MB"
        raise ApiError(413, what, "copy its folder, or use `epochal pack`")


def download_weights(site: Site, call: ApiCall) -> FileAnswer:
    """The weights file of a checkpoint, or the final weights."""
    folder, name = site.folder(call.path["id"]), call.path["name"]
    found = find_checkpoints(folder / CHECKPOINTS_DIR)
    known = {one.name: f"{CHECKPOINTS_DIR}/{one.path.name}/{TENSORS_FILE}" for one in found}
    known.setdefault(_FINAL, f"{CHECKPOINTS_DIR}/{_FINAL}.safetensors")
    if name not in known:
        raise not_found()
    if any(one.name == name and one.is_in_parts for one in found):
        what = "the weights of this checkpoint are in parts, one for each process"
        raise ApiError(409, what, "download the final weights, or load it with init_from")
    try:
        file = open_beneath(folder, known[name])
    except OSError:
        raise not_found() from None
    size = os.fstat(file.fileno()).st_size
    return FileAnswer(file, size, f"{_to_name(folder.name)}-{_to_name(name)}.safetensors")


def _to_name(text: str) -> str:
    return _UNSAFE.sub("-", text)[:100].strip(".-") or "run"
