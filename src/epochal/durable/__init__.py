"""The only package that writes files which must survive a crash.

A file is staged beside its final name, synced, renamed, and its folder is synced: readers
see the old content or the new one, never a mixture. Appended records are whole or absent.
Every system call goes through ``system.operations``, so that tests can make each of them fail
and check what is left on disk. Failures are ``WriteError``.
"""

from epochal.durable import system
from epochal.durable.append import Appender, append_line, open_lines
from epochal.durable.atomic import (
    Blob,
    StagedDir,
    find_object,
    is_untouched,
    link_or_copy,
    make_dir,
    make_inner_dir,
    remove_file,
    remove_stale,
    remove_tree,
    rename,
    replace_link,
    staged_dir,
    write_bytes,
    write_json,
    write_readonly,
    write_safetensors,
    write_stream,
    write_text,
)
from epochal.durable.encoding import decode_json, decode_line, encode_json, encode_line
from epochal.durable.held_lock import HeldLock, read_holder, try_lock
from epochal.durable.locked_file import LockedFile, is_locked
from epochal.durable.reading import (
    find_text,
    open_regular,
    read_bytes,
    read_text,
    require_regular,
)
from epochal.durable.system import Operations, WriteError, locked

__all__ = [
    "Appender",
    "Blob",
    "HeldLock",
    "LockedFile",
    "Operations",
    "StagedDir",
    "WriteError",
    "append_line",
    "decode_json",
    "decode_line",
    "encode_json",
    "encode_line",
    "find_object",
    "find_text",
    "is_locked",
    "is_untouched",
    "link_or_copy",
    "locked",
    "make_dir",
    "make_inner_dir",
    "open_lines",
    "open_regular",
    "read_bytes",
    "read_holder",
    "read_text",
    "remove_file",
    "remove_stale",
    "remove_tree",
    "rename",
    "replace_link",
    "require_regular",
    "staged_dir",
    "system",
    "try_lock",
    "write_bytes",
    "write_json",
    "write_readonly",
    "write_safetensors",
    "write_stream",
    "write_text",
]
