from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from epochal.errors import ConfigError, Place, UnknownComponentError
from epochal.registry import Project, Registry, register
from epochal.registry.component_names import KINDS
from epochal.registry.module_finder import ModuleFinder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_path(monkeypatch) -> None:
    """Loading puts folders of projects on the path."""
    monkeypatch.setattr(sys, "path", sys.path.copy())


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(Project(tmp_path))


def test_built_in_and_torch_names_are_resolved(registry) -> None:
    for kind, name, dotted in (
        ("hook", "EarlyStopping", "epochal.hooks.early_stopping.EarlyStopping"),
        ("schedule", "cosine", "epochal.components.schedules.Cosine"),
        ("task", "module", "epochal.engine.interfaces.task.ModuleTask"),
        ("runner", "train", "epochal.engine.runner.Train"),
        ("metric", "accuracy", "epochal.components.metrics.Accuracy"),
        ("optimizer", "AdamW", "torch.optim.adamw.AdamW"),
        ("optimizer", "adamw", "torch.optim.adamw.AdamW"),
        ("optimizer", "SGD", "torch.optim.sgd.SGD"),
        ("schedule", "StepLR", "torch.optim.lr_scheduler.StepLR"),
        ("schedule", "steplr", "torch.optim.lr_scheduler.StepLR"),
        ("component", "cosine", "epochal.components.schedules.Cosine"),
    ):
        found = registry.find(kind, name)
        assert (found.dotted, found.name) == (dotted, name), kind
        assert found.file is not None, kind


def test_metrics_of_torchmetrics_have_short_names(registry) -> None:
    import torchmetrics

    for module in (torchmetrics.classification, torchmetrics.regression, torchmetrics.text):
        public = {name for name in module.__all__ if isinstance(getattr(module, name), type)}
        assert public <= registry.torchmetrics.keys(), module
        for name in sorted(public):
            found = registry.load(registry.find("metric", name))
            assert found is getattr(module, name) or name in registry.names("metric"), name
    for wrong, hint in (("MulticlasF1Score", "'MulticlassF1Score'"), ("accurasy", "'accuracy'")):
        with pytest.raises(UnknownComponentError, match=f"did you mean {hint}"):
            registry.find("metric", wrong)


def test_unknown_metrics_name_the_extra_that_is_not_installed(registry, monkeypatch) -> None:
    monkeypatch.setattr(ModuleFinder, "find_module", lambda *_: None)
    with pytest.raises(UnknownComponentError, match=r"pip install 'epochal\[metrics\]'"):
        registry.find("metric", "MulticlassF1Score")


def test_every_optimizer_and_scheduler_of_torch_has_its_name(registry) -> None:
    import torch

    for kind, module, base in (
        ("optimizer", torch.optim, torch.optim.Optimizer),
        ("schedule", torch.optim.lr_scheduler, torch.optim.lr_scheduler.LRScheduler),
    ):
        public = {name for name in module.__all__ if isinstance(getattr(module, name), type)}
        public = {name for name in public if issubclass(getattr(module, name), base)}
        assert public - {base.__name__} <= set(registry.names(kind))
        for name in sorted(public - {base.__name__}):
            assert registry.load(registry.find(kind, name)) is getattr(module, name)


def test_an_unknown_name_shows_its_place_and_the_closest_name(registry) -> None:
    place = Place("a.yaml", 3, 9, "  type: adamm", 5)
    with pytest.raises(UnknownComponentError) as caught:
        registry.find("optimizer", "adamm", place, key="optim.type")
    assert str(caught.value).splitlines() == [
        "optim.type: unknown optimizer 'adamm'",
        "  set in a.yaml:3:9",
        "    type: adamm",
        "          ^^^^^",
        "  did you mean 'Adam'?",
    ]


def test_an_unknown_kind_shows_the_closest_one(registry) -> None:
    with pytest.raises(UnknownComponentError, match="unknown kind 'losses'\n  did you mean 'loss'"):
        registry.find("losses", "focal")


def test_an_unknown_name_without_known_ones_shows_a_dotted_path(registry) -> None:
    with pytest.raises(UnknownComponentError, match="write a dotted path such as"):
        registry.find("model", "Mlp")


def test_a_registered_object_is_found_and_loaded_as_it_is(registry) -> None:
    @register("model")
    class Tiny:
        pass

    assert registry.load(registry.find("model", "Tiny")) is Tiny
    assert "Tiny" in registry.names("model")


def test_an_override_takes_the_place_of_a_built_in(registry) -> None:
    @register("schedule", "cosine", override=True)
    class Mine:
        pass

    assert registry.load(registry.find("schedule", "cosine")) is Mine


def test_loading_imports_the_module_from_the_project(write_project) -> None:
    registry = write_project({"loaded_once/model.py": "class Mlp:\n    width = 3"})
    found = registry.load(registry.find("model", "loaded_once.model.Mlp"))
    assert found.width == 3


def test_imports_run_before_the_first_component_is_loaded(write_project) -> None:
    files = {"first_module.py": "", "second_module.py": "class A: pass"}
    registry = write_project(files, imports=("first_module",))
    registry.load(registry.find("model", "second_module.A"))
    assert "first_module" in sys.modules


def test_an_error_of_user_code_is_raised_unchanged(write_project) -> None:
    registry = write_project({"failing_module.py": "class A: pass\n1 / 0"})
    with pytest.raises(ZeroDivisionError):
        registry.load(registry.find("model", "failing_module.A"))


def test_two_modules_of_one_name_are_an_error(write_files, tmp_path) -> None:
    text = "class A: pass"
    write_files({"one/shared_name.py": text, "two/shared_name.py": text})
    first, second = (Registry(Project(tmp_path / name)) for name in ("one", "two"))
    first.load(first.find("model", "shared_name.A"))
    with pytest.raises(ConfigError, match="two modules are called 'shared_name'"):
        second.load(second.find("model", "shared_name.A"))


def test_a_target_that_is_no_class_when_loaded_is_refused(write_project) -> None:
    registry = write_project({"vanishing_module.py": "class A: pass\nA = 3"})
    with pytest.raises(UnknownComponentError, match="it is a variable"):
        registry.find("model", "vanishing_module.A")
    registry = write_project({"deleting_module.py": "class A: pass\ndel A"})
    with pytest.raises(ConfigError, match=r"'deleting_module\.A' is not callable"):
        registry.load(registry.find("model", "deleting_module.A"))


def test_the_metadata_of_installed_packages_are_read_once(registry, monkeypatch) -> None:
    found, calls = importlib.metadata.entry_points(), []
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda: calls.append(1) or found)
    for kind in KINDS:
        registry.names(kind, entry_points=True)
    with pytest.raises(UnknownComponentError):
        registry.find("component", "nothing_of_this_name")
    assert calls == [1]


def test_entry_points_are_the_last_resort(tmp_path) -> None:
    folder = tmp_path / "plugin-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[epochal.model]\nResnet = plugin.nets\nshort = plugin.nets:Resnet\n"
    )
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin/__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "plugin/nets.py").write_text("class Resnet: pass")
    script = (
        "from pathlib import Path; from epochal.registry import Registry, Project\n"
        "registry = Registry(Project(Path('/nowhere')))\n"
        "print(registry.find('model', 'Resnet').dotted, registry.find('model', 'short').line)\n"
        "print(*registry.names('model', entry_points=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({str(tmp_path)!r})\n{script}"],
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["plugin.nets.Resnet 1", "Resnet short"], done.stderr


def test_an_entry_point_that_two_packages_claim_names_both(tmp_path) -> None:
    for package in ("one", "two"):
        folder = tmp_path / f"{package}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(
            f"[epochal.model]\nnet = {package}.nets:Net\nsame = shared.nets:Net\n"
        )
    script = (
        "from pathlib import Path; from epochal.registry import Registry, Project\n"
        "registry = Registry(Project(Path('/nowhere')))\n"
        "print(registry.find('model', 'same').dotted, registry.names('model', entry_points=True))\n"
        "registry.find('model', 'net', key='model.type')"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({str(tmp_path)!r})\n{script}"],
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["shared.nets.Net ('same',)"], done.stderr
    assert "model.type: installed packages give the name 'net' to" in done.stderr
    assert "'one.nets.Net'" in done.stderr
    assert "'two.nets.Net'" in done.stderr


def test_a_package_that_a_loaded_one_hides_is_to_be_renamed(write_project) -> None:
    assert "numpy" in sys.modules or __import__("numpy")
    registry = write_project({"numpy/__init__.py": "", "numpy/nets.py": "class Net: pass"})
    with pytest.raises(ConfigError, match=r"the installed package 'numpy' hides the one of .*nets"):
        registry.load(registry.find("model", "numpy.nets.Net"))


def test_a_missing_import_of_user_code_is_raised_unchanged(write_project) -> None:
    files = {"missing_one/__init__.py": "", "missing_one/nets.py": "import nowhere\nclass Net: ..."}
    registry = write_project(files)
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        registry.load(registry.find("model", "missing_one.nets.Net"))


def test_dynamic_names_must_be_code_of_their_own_package(write_project) -> None:
    text = """
        import subprocess
        class Real: pass
        table = {"Lazy": Real, "Shell": subprocess.Popen, "Object": Real(), "Made": print}
        def __getattr__(name):
            return table[name] if name in table else globals()[name]
    """
    registry = write_project({"lazy_library/__init__.py": text}, roots=("lazy_library",))
    assert registry.load(registry.find("model", "lazy_library.Lazy")).__name__ == "Real"
    for name in ("Shell", "Made"):
        with pytest.raises(ConfigError, match="not a class or function of that package"):
            registry.load(registry.find("model", f"lazy_library.{name}"))
    with pytest.raises(ConfigError, match="not callable"):
        registry.load(registry.find("model", "lazy_library.Object"))


def test_nothing_is_loaded_while_the_imports_are_wrong(write_project) -> None:
    registry = write_project({"some_module.py": "class A: pass"}, imports=("os",))
    with pytest.raises(ConfigError, match="code of the standard library"):
        registry.load(registry.find("model", "some_module.A"))
    assert "some_module" not in sys.modules


def test_without_torch_its_optimizers_are_accepted_unchecked(registry) -> None:
    class WithoutTorch(ModuleFinder):
        def find_module(self, dotted: str) -> None:
            return None

    registry.finder = WithoutTorch()
    found = registry.find("optimizer", "AdamW")
    assert (found.dotted, found.file) == ("torch.optim.AdamW", None)
