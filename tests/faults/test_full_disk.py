"""Full disks: limits of the file size, and a small real file system."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import forked

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = Path(__file__).with_name("full_disk.py")
SIZES = [0, 1, 7, 8, 100, 333, 511, 512, 600, 1000, 1023, 1024, 2000, 4095, 4096, 4097, 6000]
SIZES += [7000, 8000, 8192, 9000, 10_000, 11_000, 12_000, 12_288, 13_000, 14_000, 15_000, 16_000]
SIZES += [16_100, 20_000, 100_000]


@pytest.mark.skipif(sys.platform != "linux", reason="limits to the size of files are of Linux")
def test_file_size_limit_loses_no_checkpoint(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    done = forked.run(str(SCRIPT), "limit", str(tmp_path / "run"), *map(str, SIZES))
    assert done.returncode == 0, done.stderr
    record_property("counted", done.stdout.strip())


def test_full_disk_loses_no_checkpoint(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    # A private mount: it is invisible to other processes and ends with this one.
    apart = ["unshare", "--mount", "--map-root-user"]
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    (tmp_path / "try").mkdir()
    probe = [*apart, "mount", "-t", "tmpfs", "tmpfs", str(tmp_path / "try")]
    tried = subprocess.run(probe, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no file system can be mounted here: {tried.stderr.strip()}")
    done = subprocess.run(
        [*apart, sys.executable, str(SCRIPT), "tmpfs", str(tmp_path / "disk"), "300k"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    record_property("counted", done.stdout.strip())
