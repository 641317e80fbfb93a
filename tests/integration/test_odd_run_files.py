"""Links, pipes, devices and sockets in a run folder stall no command, and nothing follows them."""

from __future__ import annotations

import shutil
from itertools import cycle
from typing import TYPE_CHECKING

import pytest

from epochal.checkpoint import load_weights
from epochal.checkpoint.run_weights import choose_run_weights
from epochal.errors import CheckpointError, EpochalError
from epochal.records import read_run
from epochal.records.folder.labels import change_labels
from epochal.records.metrics import curve_cache
from epochal.records.metrics.curve_cache import zoom
from small_project import run_folders, tree

if TYPE_CHECKING:
    from pathlib import Path

    from odd_files import OddFiles
    from small_project import Command


@pytest.fixture
def run(shop: Path, epochal: Command) -> Path:
    words = ("log.tensorboard=false", "checkpoint.every=1ep", "train.for=1ep")
    assert epochal("run", "config.yaml", *words).code == 0
    (folder,) = run_folders(shop)
    change_labels(folder, add=["paper"])
    return folder


def test_no_command_stalls_at_a_file_of_a_run(
    run: Path, shop: Path, epochal: Command, odd_file: OddFiles
) -> None:
    kinds = cycle(odd_file.kinds)
    files = sorted(path for path in run.rglob("*") if path.is_file() and not path.is_symlink())
    assert len(files) > 15
    for path in files:
        if "last" in path.parts or "best" in path.parts:
            continue
        kind = next(kinds)
        aside = path.rename(shop / "aside")
        odd_file(kind, path)
        commands = [["runs"], ["show", "last"], ["diff", "last", "last"], ["index", "verify"]]
        if "code" in path.parts or "config" in path.parts:
            commands = [["restore", "last", str(shop / "restored")], *commands[1:2]]
        if "logs" in path.parts:
            commands = [["show", "last", "--log"], *commands[:1]]
        for words in commands:
            done = epochal(*words)
            assert "Traceback" not in done.err, (path, kind, words)
        shutil.rmtree(shop / "restored", ignore_errors=True)
        assert odd_file.is_untouched(), (path, kind)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)
        aside.rename(path)


def test_weights_that_are_no_regular_file_are_refused_by_name(
    run: Path, odd_file: OddFiles
) -> None:
    final = run / "checkpoints" / "final.safetensors"
    tensors = choose_run_weights(read_run(run), "last").path / "tensors.safetensors"
    for kind in odd_file.kinds:
        odd_file(kind, final)
        with pytest.raises(
            CheckpointError, match=r"final\.safetensors: is a .* not a regular file"
        ):
            choose_run_weights(read_run(run), "final")
        if kind != "link":
            with pytest.raises(CheckpointError, match=r"final\.safetensors: no"):
                load_weights(final)
        odd_file(kind, tensors)
        with pytest.raises(EpochalError):
            choose_run_weights(read_run(run), "last")


def test_a_linked_config_is_named_and_not_used(
    run: Path, epochal: Command, odd_file: OddFiles
) -> None:
    path = run / "config" / "expanded.yaml"
    odd_file.target.write_text(path.read_text())
    odd_file("link", path)
    assert "config/expanded.yaml: not a regular file" in epochal("show", "last").out
    for words in (["test", "last"], ["resume", "last"], ["predict", "last"]):
        done = epochal(*words)
        assert done.code != 0, words
        assert "is not a regular file" in done.err, done.err


def test_a_cache_is_not_written_through_links(
    run: Path, odd_file: OddFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(curve_cache, "SMALL_FILE_BYTES", 0)
    expected = zoom(run, "train/loss").mean.tolist()
    assert (run / "cache" / "0.0").is_file()
    names = [path.name for path in (run / "cache").iterdir()]
    for kind in odd_file.kinds:
        for name in names:
            shutil.rmtree(run / "cache")
            (run / "cache").mkdir()
            odd_file(kind, run / "cache" / name)
            assert zoom(run, "train/loss").mean.tolist() == expected, (kind, name)
            assert odd_file.is_untouched(), (kind, name)
    shutil.rmtree(run / "cache")
    outside = tmp_path / "outside"
    outside.mkdir()
    (run / "cache").symlink_to(outside)
    assert zoom(run, "train/loss").mean.tolist() == expected
    assert tree(outside) == {}


def test_an_index_is_not_written_through_links(
    run: Path, shop: Path, epochal: Command, odd_file: OddFiles
) -> None:
    home = shop / "runs" / ".epochal"
    for name in ("index.db", "index.db.lock", "index.db-wal"):
        for kind in odd_file.kinds:
            shutil.rmtree(home)
            home.mkdir()
            odd_file(kind, home / name)
            done = epochal("runs")
            assert (done.code, run.name[-4:] in done.out) == (0, True), (name, kind, done.err)
            assert odd_file.is_untouched(), (name, kind)
    shutil.rmtree(home)
    (shop / "outside").mkdir()
    home.symlink_to(shop / "outside")
    assert epochal("runs").code == 0
    assert tree(shop / "outside") == {}
