from __future__ import annotations

from pathlib import Path

import pytest

from epochal.errors import ConfigError
from epochal.registry import Project, find_project
from epochal.registry.project import project_modules
from epochal.registry.project_file import get_runs_dir, name_run


def test_without_a_project_file_the_folder_itself_is_the_project(tmp_path) -> None:
    assert find_project(tmp_path) == Project(tmp_path, (), tmp_path.name)


def test_a_config_belongs_to_its_folder(write_files) -> None:
    folder = write_files({"a.yaml": ""})
    assert find_project(folder / "a.yaml").dir == folder


def test_the_nearest_project_file_above_wins(write_files) -> None:
    folder = write_files(
        {
            "pyproject.toml": '[tool.epochal]\nname = "outer"',
            "inner/pyproject.toml": '[tool.epochal]\nname = "digits"\nroots = ["torchvision"]',
            "inner/configs/deep/a.yaml": "",
        }
    )
    found = find_project(folder / "inner/configs/deep")
    assert found == Project(folder / "inner", ("torchvision",), "digits")


def test_a_pyproject_without_our_table_is_ignored(write_files) -> None:
    folder = write_files(
        {
            "epochal.toml": 'roots = ["timm"]',
            "inner/pyproject.toml": '[tool.other]\nx = 1\n[project]\ndescription = "epochal"',
        }
    )
    assert find_project(folder / "inner") == Project(folder, ("timm",), folder.name)


def test_user_dir_replaces_the_folder_but_keeps_the_settings(write_files) -> None:
    folder = write_files({"epochal.toml": 'name = "n"', "code/a.py": "", "configs/a.yaml": ""})
    found = find_project(folder / "configs", user_dir=folder / "code")
    assert (found.dir, found.name) == (folder / "code", "n")


LAYERS = {
    "models.py": "",
    "work/tasks.py": "",
    "work/src/inner.py": "",
    "work/configs/near.py": "",
    "work/configs/deep/a.yaml": "",
}


def test_without_a_project_file_the_nearest_folder_that_holds_a_module_is_taken(
    write_files, monkeypatch
) -> None:
    for modules, expected in (
        (["near"], "work/configs"),
        (["tasks"], "work"),
        (["inner"], "work"),
        (["near", "tasks"], "work/configs"),
        (["torch", "tasks"], "work"),
        (["models"], "work/configs/deep"),  # above the current folder
        (["nowhere"], "work/configs/deep"),
        ([], "work/configs/deep"),
    ):
        folder = write_files(LAYERS)
        monkeypatch.chdir(folder / "work")
        found = find_project(folder / "work/configs/deep/a.yaml", modules=modules)
        assert found.dir == folder / expected, modules
        assert found.name == Path(expected).name, modules


def test_a_config_elsewhere_finds_modules_beside_it_only(write_files, monkeypatch) -> None:
    folder = write_files(LAYERS | {"other/b.yaml": ""})
    monkeypatch.chdir(folder / "work")
    assert find_project(folder / "other", modules=["tasks", "models"]).dir == folder / "other"


def test_a_project_file_or_a_user_dir_ends_the_search(write_files, monkeypatch) -> None:
    folder = write_files(LAYERS)
    monkeypatch.chdir(folder)
    chosen = find_project(folder / "work/configs", user_dir=folder / "work", modules=["models"])
    assert chosen.dir == folder / "work"
    write_files({"work/epochal.toml": ""})
    assert find_project(folder / "work/configs", modules=["models"]).dir == folder / "work"


def test_a_wrong_project_file_is_refused(write_files) -> None:
    for text, message in (
        ('nmae = "x"', "nmae: unknown project setting\n.*\n  did you mean 'name'"),
        ('roots = "torchvision"', "roots: expected package names, got 'torchvision'"),
        ('roots = ["a b"]', "roots: expected package names"),
        ("name = 3", "name: expected text, got 3"),
        ("name = ", "not valid TOML"),
        ("private_runs = 0", "private_runs: expected true or false, got 0\n.*\n  private_runs = f"),
    ):
        with pytest.raises(ConfigError, match=message):
            find_project(write_files({"epochal.toml": text}))


def test_a_setting_in_place_of_the_table_is_refused(write_files) -> None:
    folder = write_files({"pyproject.toml": "[tool]\nepochal = 3"})
    with pytest.raises(ConfigError, match="expected a table, got 3"):
        find_project(folder)


def test_modules_and_packages_of_the_folder_and_of_src_are_its_own(write_files) -> None:
    files = dict.fromkeys(("one.py", "two/__init__.py", "three/m.py", "src/four/__init__.py"), "")
    project = Project(write_files({**files, "docs/index.md": ""}))
    assert project.own_modules() == ("four", "one", "three", "two")


def test_a_module_named_like_one_of_python_is_not_the_projects(write_files) -> None:
    project = Project(write_files({"os.py": "", "torch/__init__.py": "", "epochal.py": ""}))
    assert not any(project.owns(name) for name in ("os", "torch", "epochal"))


def test_modules_are_listed_by_their_dotted_names(write_files) -> None:
    files = dict.fromkeys(("a.py", "p/__init__.py", "p/q/r.py", "src/s/t.py", "docs/x.md"), "")
    found = project_modules(Project(folder := write_files(files)))
    assert {name: file.relative_to(folder).as_posix() for name, file in found.items()} == {
        "a": "a.py",
        "p": "p/__init__.py",
        "p.q.r": "p/q/r.py",
        "s.t": "src/s/t.py",
    }


def test_a_hidden_module_is_found_last(write_files, monkeypatch) -> None:
    folder = write_files({"calendar/model.py": "", "inner/own.py": "", "inner/configs/a.yaml": ""})
    monkeypatch.chdir(folder)
    start = folder / "inner/configs"
    assert find_project(start, modules=["calendar"]).dir == folder
    assert find_project(start, modules=["calendar", "own"]).dir == folder / "inner"


def test_the_project_file_names_the_folder_of_the_runs(write_files, tmp_path, monkeypatch) -> None:
    write_files({"a/src/x.py": "", "b/x.py": ""})
    home = tmp_path / "a"
    table = [
        ("out/runs", "out/runs", "../out/runs"),
        ("/data", "/data", "/data"),
        ("", "runs", "runs"),
    ]
    for written, at_home, below in table:
        (home / "epochal.toml").write_text(f'runs_dir = "{written}"\n')
        for folder, expected in ((home, at_home), (home / "src", below), (tmp_path / "b", "runs")):
            monkeypatch.chdir(folder)
            assert get_runs_dir() == Path(expected), (written, folder)
        assert find_project(home / "src").runs_dir == (home / written if written else Path("runs"))
    assert get_runs_dir("mine") == Path("mine")
    (home / "epochal.toml").write_text("runs_dir = 3\n")
    monkeypatch.chdir(home)
    with pytest.raises(ConfigError, match="runs_dir: expected text, got 3"):
        get_runs_dir()


def test_a_run_is_named_by_its_id_if_that_is_found(write_files, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = {"runs/p/t/123": "123", str(tmp_path / "runs/123"): "123", "mine": "mine"}
    for folder, name in (table | {"my runs/123": "'my runs/123'"}).items():
        assert name_run(Path(folder)) == name, folder
    (tmp_path / "epochal.toml").write_text("not = a table")
    assert name_run(Path("runs/123")) == "123"
    (tmp_path / "runs" / "7" / "folds").mkdir(parents=True)
    (tmp_path / "runs" / "7" / "run.json").touch()
    assert name_run(Path("runs/7/folds/1/test/p/123")) == "runs/7/folds/1/test/p/123"
    write_files({"epochal.toml": 'runs_dir = "out"', "src/x.py": ""})
    monkeypatch.chdir(tmp_path / "src")
    assert name_run(Path("../out/p/123")) == "123"
    assert name_run(Path("runs/123")) == "runs/123"
