"""Files and folders behind URLs such as ``s3://bucket/file``, read and written through fsspec."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from time import time
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from epochal.durable import system
from epochal.durable.atomic import make_dir, remove_tree, staged_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

CACHE_VARIABLE = "EPOCHAL_DATA_CACHE"
DAYS_VARIABLE = "EPOCHAL_DATA_CACHE_DAYS"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_COPY = re.compile(r"[0-9a-f]{24}-")
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
_INSTALL = "pip install 'epochal[fsspec]'"


class RemoteError(OSError):
    """A URL cannot be read or written; the message says which, why and what to do."""


class _StoreError(Exception):
    """A store failed while a file was copied, not the disk with the copy; the cause says why."""


def is_url(path: object) -> bool:
    """Whether a path is a URL of another store than the local file system."""
    return bool(_URL.match(str(path))) and not str(path).startswith("file://")


def to_local(path: str | Path) -> Path:
    """A path of this machine; ``file:///data/x`` is one, too."""
    text = str(path)
    return Path(unquote(text[7:]) if text.startswith("file://") else text).expanduser()


def hide_credentials(url: str) -> str:
    """A URL as messages show it: without a user, a password and a query, which may be signed."""
    if not is_url(url):
        return url
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def find_url_problem(url: str) -> tuple[str, str] | None:
    """Why URLs of this kind cannot be used here, and what to do; nothing is connected to."""
    try:
        from fsspec.registry import get_filesystem_class, known_implementations
    except ImportError:
        return "needs fsspec, which is not installed", _INSTALL
    for part in url.split("::"):
        protocol = part.partition("://")[0]
        facts = known_implementations.get(protocol)
        package = str(facts["class"]).partition(".")[0] if facts else ""
        if package not in ("", "fsspec"):  # importing it can take seconds
            if find_spec(package) is None:
                return f"{protocol}:// needs {package}, which is not installed", _install(package)
            continue
        try:
            get_filesystem_class(protocol)
        except ValueError:
            return (
                f"unknown protocol {protocol!r}",
                "known are s3, gs, abfs, https, sftp and others",
            )
        except ImportError as error:
            missing = error.__cause__
            name = missing.name if isinstance(missing, ImportError) else None
            what = f"{protocol}:// needs {name or 'a package'}, which is not installed"
            return what, _install(name) if name else str(error)
    return None


def _install(package: str) -> str:
    return f"pip install {package}"


def match_urls(pattern: str) -> list[str]:
    """The URLs that a URL with a pattern such as ``s3://bucket/part-*.jsonl`` names, sorted."""
    if not any(mark in pattern for mark in "*?["):
        return [pattern]
    with _explained(pattern):
        store, inner = _open_store(pattern)
        return sorted(store.unstrip_protocol(one) for one in store.glob(inner))


def fetch(url: str, *, marker: str = "", is_folder: bool = False) -> Path:
    """A local copy of the file at a URL, or of a folder, which may be known by its ``marker``.

    Copies are kept in ``$EPOCHAL_DATA_CACHE``, else in ``~/.cache/epochal/data``. What has changed
    at its source is copied again. A new copy removes those that were not used for
    ``$EPOCHAL_DATA_CACHE_DAYS``.

    Raises:
        RemoteError: It cannot be read.
    """
    folder = Path(os.environ.get(CACHE_VARIABLE) or "~/.cache/epochal/data").expanduser()
    with _explained(url):
        store, inner = _open_store(url)
        inner = inner.rstrip("/")
        is_folder = is_folder or (bool(marker) and store.isfile(f"{inner}/{marker}"))
        if is_folder:
            files = _list(store, inner)
            if not files:
                raise FileNotFoundError(inner)
            version = str(sorted((name, str(facts)) for name, facts in files.items()))
        else:
            version = store.ukey(inner)
        digest = hashlib.sha256(f"{url}\n{version}".encode()).hexdigest()[:24]
        target = folder / f"{digest}-{inner.rpartition('/')[2]}"
        if not target.exists():
            # The processes of a run ask for it at once, and only the first one copies it.
            with _locked(target):
                if is_folder and not target.exists():
                    _copy_folder(store, inner, target)
                elif not target.exists():
                    _copy(store, inner, target)
            _remove_unused(folder)
        os.utime(target, (time(), target.stat().st_mtime))  # the time of access is that of use
    return target


def _remove_unused(folder: Path) -> None:
    """Remove copies that were not used for as many days as the environment says."""
    days = os.environ.get(DAYS_VARIABLE)
    if not days:
        return
    oldest = time() - float(days) * 24 * 60 * 60
    for path in folder.iterdir():
        if _COPY.match(path.name) and path.stat().st_atime < oldest:
            remove_tree(path, uuid4().hex[:8])


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    target.parent.mkdir(parents=True, exist_ok=True)
    path = target.with_name(f".{target.name}.lock")
    with system.locked(path, os.O_RDWR | os.O_CREAT):
        yield
        path.unlink(missing_ok=True)


def _list(store: Any, inner: str) -> dict[str, Any]:  # noqa: ANN401 - of fsspec
    found: dict[str, Any] = store.find(inner, detail=True)
    return found


def _copy(store: Any, inner: str, target: Path) -> None:  # noqa: ANN401 - of fsspec
    with system.replacing(target) as partial:  # whole, or not there
        try:
            store.get_file(inner, str(partial))
        except OSError as error:
            if error.filename == str(partial) or error.errno in _DISK_ERRORS:
                raise
            raise _StoreError from error


def _copy_folder(store: Any, inner: str, target: Path) -> None:  # noqa: ANN401 - of fsspec
    with staged_dir(target, uuid4().hex[:8]) as staging:
        for name in _list(store, inner):
            below = name[len(inner) :].lstrip("/")
            if not below or ".." in below.split("/"):
                raise ValueError(f"{below!r} is not a file name")
            file = staging.path / below
            file.parent.mkdir(parents=True, exist_ok=True)
            store.get_file(name, str(file))


@contextmanager
def open_input(source: str) -> Iterator[IO[bytes]]:
    """A file or a URL, open for reading from its start to its end."""
    if not is_url(source):
        with to_local(source).open("rb") as local:
            yield local
        return
    with _explained(source):
        store, inner = _open_store(source)
        file = store.open(inner, "rb")
    with file:
        yield file


@contextmanager
def open_output(target: str) -> Iterator[IO[bytes]]:
    """A new file or URL, open for writing; it appears when the block has ended.

    Object stores and file systems guarantee this; with other stores, an interrupted block may leave
    an incomplete file.
    """
    if is_url(target):
        with _open_remote_output(target) as file:
            yield file
        return
    path = to_local(target)
    if path.exists():
        raise RemoteError(f"{path}: exists already\n  choose another name")
    make_dir(path.parent, exist_ok=True)
    with system.replacing(path) as staged, staged.open("xb") as file:
        yield file
        file.flush()
        system.operations.fsync(file.fileno())
    system.sync_dir(path.parent)


@contextmanager
def _open_remote_output(url: str) -> Iterator[IO[bytes]]:
    with _explained(url):
        store, inner = _open_store(url)
        if store.exists(inner):
            raise RemoteError(f"{hide_credentials(url)}: exists already\n  choose another name")
        store.start_transaction()
        file = store.open(inner, "wb")
    is_whole = False
    try:
        yield file
        is_whole = True
    finally:
        with _explained(url):
            if is_whole:
                file.close()
            store.transaction.complete(commit=is_whole)
            with suppress(AttributeError):  # otherwise it is uploaded when it is collected
                file.closed = True


def _open_store(url: str) -> tuple[Any, str]:
    problem = find_url_problem(url)
    if problem is not None:
        what, hint = problem
        raise RemoteError(f"{hide_credentials(url)}: {what}\n  {hint}")
    from fsspec.core import url_to_fs

    store, inner = url_to_fs(url)
    return store, inner


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Turn the various errors of stores into a RemoteError."""
    try:
        yield
    except RemoteError:
        raise
    except Exception as raised:
        error = raised.__cause__ if isinstance(raised, _StoreError) else raised
        shown = hide_credentials(url)
        if isinstance(error, FileNotFoundError):
            raise RemoteError(f"{shown}: no such file or folder") from error
        reason = str(error).replace(url, shown) or type(error).__name__
        hint = "check the name, the network and the credentials of the store"
        raise RemoteError(f"{shown}: {reason}\n  {hint}") from error
