"""Signs mail, queued jobs and sweeps of this user; only signed ones are sent or executed.

A folder that was copied, shared or unpacked can contain any address, any ``${env:NAME}`` and any
code. Mail of other processes is therefore sent, and a job started, only if it has a signature by
the key of this user, for this content at this path. The key is a file in the user's home that no
other user can read.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal import durable
from epochal.durable.encoding import to_plain
from epochal.records.layout.os_errors import describe_os_error

if TYPE_CHECKING:
    from collections.abc import Mapping

SIGNATURE = "signature"
"""The entry of a file that holds its signature."""

_KEY_BYTES = 32
_KEY_MODE = 0o600


class KeyUnusableError(Exception):
    """The key of this user cannot be read or made; says which file, why, and what to do."""


def find_key_path() -> Path:
    """The file with the key of this user; it may not exist yet."""
    try:
        home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    except RuntimeError as error:
        raise KeyUnusableError("this user has no home folder\n  set HOME") from error
    path = Path(home) / "epochal" / "signing.key"
    earlier = path.with_name("mail.key")  # the name of the key in earlier versions
    if not os.path.lexists(path) and os.path.lexists(earlier):
        with suppress(OSError):
            path.hardlink_to(earlier)  # frozen jobs may have an Epochal that reads this one
        return path if os.path.lexists(path) else earlier
    return path


def write_signed(path: Path, values: Mapping[str, Any]) -> None:
    """Write values as JSON with the signature of this user.

    Raises KeyUnusableError, or OSError if the file cannot be written.
    """
    plain: Any = to_plain(values)
    durable.write_json(path, {**plain, SIGNATURE: _sign(_get_key(), path, plain)})


def sign(path: Path, values: Mapping[str, Any]) -> str:
    """The signature of this user for values that belong to a path; may raise KeyUnusableError."""
    return _sign(_get_key(), path, values)


def is_signed(path: Path, values: Mapping[str, Any]) -> bool:
    """Whether this user's runs wrote these values, and no others, to this path."""
    signed = {name: value for name, value in values.items() if name != SIGNATURE}
    return has_signature(values.get(SIGNATURE), path, signed)


def has_signature(signature: object, path: Path, values: Mapping[str, Any]) -> bool:
    """Whether a signature is that of this user for these values at this path."""
    if not isinstance(signature, str) or not signature.isascii():
        return False
    try:
        if not _is_owned(path.lstat()):
            return False
        key = _read_key(find_key_path())
    except (OSError, KeyUnusableError):
        return False
    return hmac.compare_digest(signature, _sign(key, path, values))


def check_key() -> None:
    """Raise KeyUnusableError if this user has a key that cannot be used."""
    if os.path.lexists(find_key_path()):
        _get_key()


def _sign(key: bytes, path: Path, values: Mapping[str, Any]) -> str:
    # The real path: neither a copy of the folder nor another file in it has the same.
    place = f"{path.parent.resolve()}/{path.name}"
    text = json.dumps([place, to_plain(values)], sort_keys=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _get_key() -> bytes:
    path = find_key_path()
    try:
        if not os.path.lexists(path):
            _create_key(path)
        return _read_key(path)
    except OSError as error:
        raise KeyUnusableError(f"{path}: {describe_os_error(error)}") from error


def _read_key(path: Path) -> bytes:
    with durable.open_regular(path) as file:
        status, data = os.fstat(file.fileno()), file.read(_KEY_BYTES + 1)
    if not _is_owned(status):
        raise KeyUnusableError(f"{path}: belongs to another user")
    if os.name == "posix" and status.st_mode & 0o077:
        raise KeyUnusableError(f"{path}: other users may read it\n  chmod 600 {path}")
    if len(data) != _KEY_BYTES:
        raise KeyUnusableError(f"{path}: is damaged\n  delete it; the next run makes another")
    return data


def _create_key(path: Path) -> None:
    """Make the key, unless another process is faster."""
    durable.make_dir(path.parent, exist_ok=True)
    temporary = durable.system.temporary_name(path)
    key = os.urandom(_KEY_BYTES)
    durable.system.create(temporary, lambda file: durable.system.write_all(file, key), _KEY_MODE)
    try:
        with suppress(FileExistsError):
            path.hardlink_to(temporary)
    except OSError:  # a file system without hard links
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _is_owned(status: os.stat_result) -> bool:
    """Whether a file belongs to this user, where the system can tell."""
    return os.name != "posix" or status.st_uid == os.geteuid()
