"""Tests of which files of a project are ignored."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from epochal.records.code.ignore import IgnoreRules, is_rarely_code

if TYPE_CHECKING:
    from pathlib import Path


def find(lines: list[str], path: str, *, base: str = "") -> bool | None:
    """Whether lines ignore ``path``, which ends with a slash if it is a folder."""
    rules = IgnoreRules()
    rules.add(lines, base=base)
    return rules.find(path.rstrip("/"), is_folder=path.endswith("/"))


GITIGNORES = [
    ["*.csv", "!keep.csv", "/top", "any", "deep/inner", "fold/", "a/**/z", "**/q", "t?st", "[xy]1"],
    ["*", "!*/", "!*.py"],
    ["/*", "!/a/", "/a/b/*"],
    ["a/**", "!a/b"],
    ["**/", "!a", "!b/"],
    ["\\#odd", "# notes", "", "/", "!", "[z-a]", "a[", "[[a]", "test  ", "***"],
]
PATHS = [
    "a.csv", "keep.csv", "d/keep.csv", "top", "d/top", "any", "d/e/any", "deep/inner",
    "d/deep/inner", "fold", "d/fold/", "a/z", "a/b/z", "a/b/c/z", "q", "d/q/", "test", "tst", "x1",
    "d/y1", "x.py", "d/x.py", "a/b/x.py", "#odd", "# notes", "a/", "a/b/", "d/a/", "[z-a]", "a[",
]  # fmt: skip


def test_lines_have_the_same_meaning_as_for_git(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for path in PATHS:
        folder = path.rpartition("/")[0]
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            (tmp_path / path).touch()
    for lines in GITIGNORES:
        (tmp_path / ".gitignore").write_text("\n".join(lines))
        asked = subprocess.run(
            ["git", "-C", str(tmp_path), "check-ignore", "--stdin"],
            input="\n".join(path.rstrip("/") for path in PATHS),
            capture_output=True,
            text=True,
            check=False,
        )
        for path in PATHS:
            names = path.rstrip("/").split("/")
            parents = ["/".join(names[:depth]) + "/" for depth in range(1, len(names))]
            is_ignored = any(find(lines, one) for one in (*parents, path))
            assert is_ignored == (path.rstrip("/") in asked.stdout.splitlines()), (lines, path)


def test_only_the_path_itself_is_matched() -> None:
    assert find(["!out"], "out/model.pt") is None
    assert find(["out/"], "out/a.py") is None
    assert find(["*.csv"], "a.csv/b") is None
    assert find(["!data/**"], "data/a/b.json") is False


def test_lines_may_begin_with_the_current_folder() -> None:
    assert find(["./a"], "a") is True
    assert find(["!./a"], "a") is False


def test_lines_of_an_inner_folder_apply_below_it_and_outrank_outer_ones() -> None:
    assert find(["x"], "inner/a/x", base="inner/") is True
    assert find(["x"], "x", base="inner/") is None
    assert find(["/x"], "inner/a/x", base="inner/") is None
    rules = IgnoreRules()
    rules.add(["!*.py"], base="a/b/")
    rules.add(["*.py"])
    rules.add(["x.py"], base="a/")
    assert rules.find("a/b/x.py", is_folder=False) is False
    assert rules.find("c/b/x.py", is_folder=False) is True


def test_hidden_files_caches_weights_and_data_are_rarely_code() -> None:
    folders = [".git", "__pycache__", "a/__pycache__", "build", "a.egg-info", "model.pt"]
    files = ["model.pt", "a.pyc", "a/.hidden", "b~", "x.tar.gz"]
    assert [one for one in folders if not is_rarely_code(one, is_folder=True)] == []
    assert [one for one in files if not is_rarely_code(one, is_folder=False)] == []
    code = ["a.py", "conf/a.yaml", "build.py", "build", "words.txt", "runs.py", "pt"]
    assert [one for one in code if is_rarely_code(one, is_folder=False)] == []
    assert not is_rarely_code("a/build", is_folder=True)
