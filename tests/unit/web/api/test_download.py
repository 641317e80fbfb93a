"""Downloads: the record of a run without checkpoints and links, and weights by name."""

from __future__ import annotations

import io
import os
import tarfile
from typing import TYPE_CHECKING

import pytest

from comparing import make_run
from epochal.web.api import download

if TYPE_CHECKING:
    from pathlib import Path

    from browsing import Browser

RUN = "20261114-100000-aaaa"


@pytest.fixture
def folder(runs: Path, tmp_path: Path) -> Path:
    """A run with a checkpoint, a link to a secret, and a socket-like file."""
    found = runs / "shop" / "t" / RUN
    (tmp_path / "secret.txt").write_text("SECRET")
    (found / "link.txt").symlink_to(tmp_path / "secret.txt")
    (found / "inner").symlink_to(tmp_path)
    os.mkfifo(found / "pipe")
    (found / ".hidden").write_text("hidden")
    checkpoint = found / "checkpoints" / "t-5"
    checkpoint.mkdir(parents=True)
    (checkpoint / "tensors.safetensors").write_bytes(b"weights" * 300_000)
    (found / "checkpoints" / "final.safetensors").write_bytes(b"final")
    return found


def test_a_record_is_one_file_without_checkpoints_and_links(browser: Browser, folder: Path) -> None:
    done = browser.send("GET", f"/api/runs/{RUN}/download")
    assert done.status == 200
    assert done.headers["content-disposition"] == f'attachment; filename="{RUN}.tar.gz"'
    assert done.headers["content-security-policy"].startswith("sandbox")
    assert int(done.headers["content-length"]) == len(done.body)
    with tarfile.open(fileobj=io.BytesIO(done.body)) as archive:
        names = archive.getnames()
        readme = archive.extractfile(f"{RUN}/README.md")
        assert readme is not None
        assert readme.read() == (folder / "README.md").read_bytes()
        assert all(one.isreg() for one in archive.getmembers())
    assert f"{RUN}/logs/run.log" in names
    gone = ("checkpoints", "link.txt", "inner", "pipe", ".hidden")
    assert not [name for name in names if any(part in name for part in gone)]


def test_large_records_are_refused(
    browser: Browser, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "MAX_RECORD_BYTES", 1000)
    done = browser.send("GET", f"/api/runs/{RUN}/download")
    assert (done.status, done.json["error"]["hint"]) == (413, "copy its folder instead")


def test_weights_are_downloaded_by_the_name_of_their_checkpoint(
    browser: Browser, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/api/runs/{RUN}/checkpoints"
    assert browser.send("GET", f"{path}/final/weights").body == b"final"
    for name in ("t-5", "t-6", "..", "%2e%2e", "inner"):
        assert browser.send("GET", f"{path}/{name}/weights").status == 404, name

    class Known:
        name, path = "t-5", folder / "checkpoints" / "t-5"
        is_in_parts = True

    monkeypatch.setattr(download, "find_checkpoints", lambda path: [Known()])
    done = browser.send("GET", f"{path}/t-5/weights")
    assert (done.status, done.json["error"]["hint"]) == (
        409,
        "download the final weights, or load it with init_from",
    )
    Known.is_in_parts = False
    done = browser.send("GET", f"{path}/t-5/weights")
    assert done.body == b"weights" * 300_000
    assert done.headers["content-disposition"].endswith(f'filename="{RUN}-t-5.safetensors"')
    (Known.path / "tensors.safetensors").unlink()
    (Known.path / "tensors.safetensors").symlink_to(folder / "README.md")
    assert browser.send("GET", f"{path}/t-5/weights").status == 404, "a link"


def test_unknown_runs_have_no_download(browser: Browser, runs: Path) -> None:
    make_run(runs / "p" / "t" / "20261116-000000-abcd")
    assert browser.send("GET", "/api/runs/20261116-000000-abcd/download").status == 200
    for path in ("/api/runs/x/download", "/api/runs/x/checkpoints/final/weights"):
        assert browser.send("GET", path).status == 404
