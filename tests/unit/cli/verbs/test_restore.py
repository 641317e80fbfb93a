"""Tests of ``epochal restore``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from small_project import Command, run_folders

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def trained(shop: Path, epochal: Command) -> Path:
    assert epochal("run", "config.yaml", "--fast").code == 0
    return run_folders(shop)[0]


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.usefixtures("command_on_path")
def test_next_commands_are_printed(trained: Path, epochal: Command, tmp_path: Path) -> None:
    done = epochal("restore", "last", tmp_path / "back")
    assert done.code == 0
    assert done.out == (
        f"restored 5 files of shop ({trained.name}) to {tmp_path / 'back'}\n"
        "  all files are unchanged: on the same machine the run repeats bit for bit, unless it"
        " reads hidden files or data elsewhere\n\n"
        f"next\n\n  cd {tmp_path / 'back'}\n  epochal run restored.yaml\n"
    )


def test_missing_and_skipped_files_are_listed(shop: Path, epochal: Command, tmp_path: Path) -> None:
    (shop / ".env").write_text("A=1\n")
    (shop / "home").symlink_to("/root")
    (shop / "big.txt").write_bytes(b" " * 2_000_000)
    (shop / "data").mkdir()
    for number in range(5):
        (shop / "data" / f"{number}.csv").write_bytes(b" " * 1_000_000)
    (shop / "weights.pt").touch()
    assert epochal("run", "config.yaml", "--fast").code == 0
    (folder,) = run_folders(shop)
    kept = folder / "code" / "project" / "base.yaml"
    kept.chmod(0o644)
    kept.write_text("other: 1\n")
    done = epochal("restore", folder, tmp_path / "back")
    message = "1 file is not as recorded: project/base.yaml (changed)\n  nothing was restored; "
    assert (done.code, message in done.err, (tmp_path / "back").exists()) == (74, True, False)
    done = epochal("restore", folder, tmp_path / "back", "--partial")
    assert done.code == 74
    assert "  missing: base.yaml\n" in done.out
    told = ".env (secret), big.txt (large, 2.0 MB), data/*.csv (data, 5 files, 5.0 MB)"
    assert f"  not saved: {told}, home -> /root\n  ignored: weights.pt\n" in done.out


def test_other_package_versions_are_listed(trained: Path, epochal: Command, tmp_path: Path) -> None:
    facts = json.loads((trained / "run.json").read_text())
    facts["machine"]["packages"] |= {"numpy": "0.1", "gone": "2.0"}
    rewrite(trained / "run.json", machine=facts["machine"])
    out = epochal("restore", "last", tmp_path / "back").out
    assert "  other package versions here: " in out
    assert "numpy 0.1 -> " in out
    assert "gone 2.0 -> none" in out


def test_parts_from_python_are_mentioned(trained: Path, epochal: Command, tmp_path: Path) -> None:
    rewrite(trained / "run.json", given=["task"], command="train.py --x")
    out = epochal("restore", "last", tmp_path / "back").out
    assert "task were passed in Python; start its script: train.py --x" in out


def test_what_keeps_a_run_from_repeating_is_mentioned(
    trained: Path, epochal: Command, tmp_path: Path
) -> None:
    expanded = trained / "config" / "expanded.yaml"
    text = expanded.read_text()
    assert "init_from: null" in text
    expanded.write_text(text.replace("init_from: null", "init_from: old.pt"))
    out = epochal("restore", "last", tmp_path / "weights").out
    assert "  its initial weights are not restored: init_from: old.pt\n" in out
    assert "bit for bit" not in out
    expanded.write_text(text)
    attempts = [{"attempt": 0}, {"attempt": 1, "changed": ["code: 1 -> 2"]}]
    rewrite(trained / "run.json", attempts=attempts)
    out = epochal("restore", "last", tmp_path / "code").out
    assert "  it was resumed with other code; --attempt N restores that code\n" in out
    assert "bit for bit" not in out


def test_command_starts_where_the_run_was_started(
    trained: Path, shop: Path, epochal: Command, tmp_path: Path
) -> None:
    rewrite(trained / "run.json", cwd=str(shop / "shop"))
    done = epochal("restore", trained, tmp_path / "back", "--json")
    cd, again = json.loads(done.out)["command"]
    assert cd == f"cd {tmp_path / 'back' / 'shop'}"
    assert again.endswith(" run ../restored.yaml")


def test_command_has_user_dir_inside_another_project(
    trained: Path, shop: Path, epochal: Command
) -> None:
    manifest = trained / "code" / "manifest.json"
    text = manifest.read_text()
    lines = [line for line in text.splitlines() if '"pyproject.toml"' not in line]
    manifest.write_text("\n".join(lines))
    done = epochal("restore", trained, shop / "back", "--json", "--partial")
    assert json.loads(done.out)["command"][1].endswith("run restored.yaml --user-dir .")


def test_command_changes_an_exact_folder(shop: Path, epochal: Command, tmp_path: Path) -> None:
    words = ("record.exact=true", "record.log_dir=alone")
    assert epochal("run", "config.yaml", "--fast", *words).code == 0
    done = epochal("restore", shop / "alone", tmp_path / "back", "--json")
    assert "record.exact=false record.log_dir=runs" in json.loads(done.out)["command"][1]


def test_later_change_of_the_config_is_mentioned(
    trained: Path, epochal: Command, tmp_path: Path
) -> None:
    facts = json.loads((trained / "run.json").read_text())
    attempts = [*facts["attempts"], {"attempt": 1, "overrides": ["optim.lr=1"]}]
    rewrite(trained / "run.json", attempts=attempts)
    out = epochal("restore", "last", tmp_path / "back").out
    assert "it was resumed with another config" in out


def test_no_command_is_printed_without_a_config(
    trained: Path, epochal: Command, tmp_path: Path
) -> None:
    (trained / "config" / "expanded.yaml").unlink()
    done = epochal("restore", "last", tmp_path / "back")
    assert "next" not in done.out


def test_folder_that_is_not_empty_is_refused(trained: Path, shop: Path, epochal: Command) -> None:
    done = epochal("restore", "last", shop)
    assert done.code == 78
    assert "exists already and is not empty" in done.err


def test_files_with_removed_secrets_are_listed(
    shop: Path, epochal: Command, tmp_path: Path
) -> None:
    (shop / "hub.py").write_text('hub = "ghp_' + "a1B2" * 10 + '"\n')
    assert epochal("run", "config.yaml", "--fast").code == 0
    out = epochal("restore", "last", tmp_path / "back").out
    assert "  changed: hub.py (secrets removed)\n" in out
