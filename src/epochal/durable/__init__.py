"""The only package that writes files which must survive a crash.

A file is staged beside its final name, synced, renamed, and its folder is synced: readers
see the old content or the new one, never a mixture. Appended records are whole or absent.
Every call to the operating system goes through ``system.operations``, so that each of them can
be made to fail, and what then remains on disk can be looked at. Failures are ``WriteError``.
"""

from epochal.durable import system
from epochal.durable.append import Appender, append_line, open_lines
from epochal.durable.blobs import DTYPE_BYTES, Blob
from epochal.durable.files import (
    find_object,
    make_dir,
    remove_file,
    write_bytes,
    write_json,
    write_safetensors,
    write_text,
)
from epochal.durable.folders import (
    REMOVING,
    STAGING,
    StagedDir,
    remove_stale,
    remove_tree,
    rename,
    replace_link,
    staged_dir,
)
from epochal.durable.shared import is_kept, keep_bytes, share
from epochal.durable.system import Operations, WriteError
from epochal.durable.text import decode_json, decode_line, encode_json, encode_line

__all__ = [
    "DTYPE_BYTES",
    "REMOVING",
    "STAGING",
    "Appender",
    "Blob",
    "Operations",
    "StagedDir",
    "WriteError",
    "append_line",
    "decode_json",
    "decode_line",
    "encode_json",
    "encode_line",
    "find_object",
    "is_kept",
    "keep_bytes",
    "make_dir",
    "open_lines",
    "remove_file",
    "remove_stale",
    "remove_tree",
    "rename",
    "replace_link",
    "share",
    "staged_dir",
    "system",
    "write_bytes",
    "write_json",
    "write_safetensors",
    "write_text",
]
