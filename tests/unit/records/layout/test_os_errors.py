"""Tests of epochal.records.layout.os_errors."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from epochal.durable import WriteError
from epochal.errors import RecordError
from epochal.records.layout.os_errors import explain_os_error, raising_record_errors


def test_errors_have_a_hint() -> None:
    for code, hint in [
        (errno.ENOSPC, "free some space there, or choose another folder: record.log_dir=PATH"),
        (errno.EDQUOT, "free some of your quota there, or choose another folder"),
        (errno.EACCES, "ask for write permission, or choose another folder"),
        (errno.EROFS, "the disk is mounted read-only; choose another folder"),
        (errno.EIO, "the disk reports an error, see `dmesg`"),
        (errno.EBADF, "it was closed already"),
        (errno.ELOOP, "choose another folder: record.log_dir=PATH"),
    ]:
        error = WriteError(Path("runs/status.json"), OSError(code, os.strerror(code)))
        first, second = explain_os_error(error).splitlines()
        assert first == f"runs/status.json: cannot be written: {os.strerror(code).lower()}"
        assert second.startswith(f"  {hint}")


def test_os_errors_become_record_errors_and_others_pass() -> None:
    @raising_record_errors()
    def fail() -> None:
        raise WriteError(Path("a"), OSError(errno.EIO, "fault"))

    with pytest.raises(RecordError, match=r"a: cannot be written: fault\n  the disk") as caught:
        fail()
    assert isinstance(caught.value.__cause__, WriteError)
    hint = r"^odd\n  choose another folder: record\.log_dir=PATH$"
    with pytest.raises(RecordError, match=hint), raising_record_errors():
        raise OSError("odd")
    with pytest.raises(KeyError), raising_record_errors():
        raise KeyError("x")
