"""Tests of ``epochal describe``."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING

import pytest

from epochal import durable
from epochal.records.folder.folder import RecordOptions, create_run_folder
from epochal.records.folder.writer import RunWriter
from failing_disk import read_only_disk

if TYPE_CHECKING:
    from pathlib import Path

    from small_project import Command


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = create_run_folder(RecordOptions(), project="p", tag="digits")
    writer = RunWriter(folder)
    writer.write_readme("digits", "does it hold?")
    writer.write_run({"project": "p", "tag": "digits"})
    writer.write_status("running")
    writer.close()
    return folder.path


def test_page_is_shown(run_dir: Path, epochal: Command) -> None:
    assert epochal("describe", "last").out == "# digits\n\ndoes it hold?\n"


def test_text_and_title_are_replaced(run_dir: Path, epochal: Command) -> None:
    assert epochal("describe", "last", "it does", "--tag", "Digits, wide").code == 0
    content = (run_dir / "README.md").read_text()
    assert content.startswith("# Digits, wide\n\nit does\n\n---\n")
    assert "np.fromfile" in content


def test_text_is_added(run_dir: Path, epochal: Command) -> None:
    epochal("describe", "last", "it does", "--add")
    assert epochal("describe", "last").out == "# digits\n\ndoes it hold?\n\nit does\n"


def test_text_comes_from_standard_input(
    run_dir: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("line one\nline two\n"))
    assert epochal("describe", "last", "-").out == "# digits\n\nline one\nline two\n"


def test_page_is_not_touched_by_reading(run_dir: Path, epochal: Command) -> None:
    os.utime(run_dir / "README.md", (1, 1))
    epochal("describe", "last")
    assert (run_dir / "README.md").stat().st_mtime == 1


def test_page_that_was_removed_begins_with_the_tag(run_dir: Path, epochal: Command) -> None:
    (run_dir / "README.md").unlink()
    epochal("describe", "last", "again")
    assert (run_dir / "README.md").read_text() == "# digits\n\nagain\n"


def test_page_is_printed_as_json(run_dir: Path, epochal: Command) -> None:
    told = json.loads(epochal("describe", "last", "--json").out)
    assert told == {
        "run": run_dir.name,
        "title": "digits",
        "text": "does it hold?",
        "file": f"runs/p/digits/{run_dir.name}/README.md",
        "labels": [],
        "archived": False,
    }


def test_several_runs_are_labelled_and_archived(run_dir: Path, epochal: Command) -> None:
    other = create_run_folder(RecordOptions(), project="p", tag="other").id
    first = run_dir.name
    done = epochal("describe", first, other, "--label", "paper, baseline", "--archive")
    assert done.out == "".join(
        f"{one}: labels: baseline, paper; archived\n" for one in (first, other)
    )
    assert epochal("describe", other, "--unlabel", "paper,baseline", "--unarchive").out == (
        f"{other}: no labels\n"
    )
    assert epochal("describe", first).out == (
        "# digits\n\ndoes it hold?\n\n(labels: baseline, paper; archived)\n"
    )
    told = json.loads(epochal("describe", first, other, "--label", "c", "--json").out)
    assert told == [
        {"run": first, "labels": ["baseline", "c", "paper"], "archived": True},
        {"run": other, "labels": ["c"], "archived": False},
    ]


def test_labels_that_cannot_be_given_change_nothing(run_dir: Path, epochal: Command) -> None:
    name = run_dir.name
    for words, message in (
        ((name, "nowhere", "--label", "a"), "nowhere: no such run"),
        ((name, "a new text", "--label", "a"), "a text does not go with labels"),
        ((name, "--label", "x" * 61), "is too long for a label"),
        ((name, "--archive", "--unarchive"), "contradicts --unarchive"),
        ((name, "--archive", "--tag", "x"), "cannot be combined with labels"),
        ((name, "it", "does"), "takes one run and one text, got 3 words"),
    ):
        done = epochal("describe", *words)
        assert done.code in (74, 78), words
        assert message in done.err, words
    assert not (run_dir / "labels.json").exists()


def test_unknown_run_is_an_error(run_dir: Path, epochal: Command) -> None:
    assert epochal("describe", "nothing-like-it", "text").code == 74


def test_the_text_may_follow_an_option(run_dir: Path, epochal: Command) -> None:
    assert epochal("describe", "last", "--tag", "wide", "it does").out == "# wide\n\nit does\n"
    assert epochal("describe", "last", "--add", "now").out == "# wide\n\nit does\n\nnow\n"
    assert epochal("describe", "last", "--add", "one", "two").code != 0


def test_read_only_page_can_be_shown_but_not_changed(
    run_dir: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable.system, "operations", read_only_disk())
    assert epochal("describe", "last").code == 0
    done = epochal("describe", "last", "new")
    assert done.code == 74
    path = (run_dir / "README.md").relative_to(run_dir.parents[3])
    assert done.err == (
        f"{path}: cannot be written: read-only file system\n"
        "  ask for write permission, or use a copy in your own folder\n"
    )
    assert "does it hold?" in (run_dir / "README.md").read_text()
