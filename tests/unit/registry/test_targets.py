from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from epochal.errors import UnknownComponentError
from epochal.registry import targets

if TYPE_CHECKING:
    from epochal.registry import Registry

USER = """
    import os
    import subprocess
    from os import system
    from subprocess import Popen
    from functools import partial
    from torch.nn import Linear
    from torch import load as torch_load
    from epochal.config import load

    class Mlp:
        class Inner: pass
        def method(self): ...

    def make(): ...
    settings = Mlp()
    alias = make
"""

HOSTILE = [
    "eval", "exec", "open", "__import__", "print", "builtins.eval", "builtins.exec",
    "builtins.open", "builtins.__import__", "os.system", "os.popen", "posix.system",
    "subprocess.Popen", "subprocess.run", "functools.partial", "importlib.import_module",
    "runpy.run_path", "shutil.rmtree", "pickle.loads", "ctypes.CDLL", "torch.load",
    "torch.hub.load", "torch.jit.load", "torch.utils.cpp_extension.load",
    "torch.nn.functional.relu", "torch.utils.data.default_collate",
    "torch.optim.lr_scheduler.warnings", "torch.utils.data.dataloader.os.system",
    "epochal.config.load", "epochal.experiment.run", "epochal.registry.Registry",
    "epochal.durable.write_bytes", "epochal.cli.main", "user.os.system", "user.system",
    "user.Popen", "user.subprocess.Popen", "user.partial", "user.torch_load", "user.load",
    "user.settings", "user.alias", "user.Mlp.Inner", "user.Mlp.method", "user.Mlp.__init__",
    "user.__builtins__.eval", "user.Mlp.__class__.__base__.__subclasses__",
    "user.make.__globals__", "__main__.anything", ".user.Mlp", "user..Mlp", "user.Mlp.", ".",
    "..", "user.", "user/Mlp.x", "../user.Mlp", "user.Mlp()", "user.Mlp;os.system", "user Mlp.x",
    "\uff4f\uff53.system", "u\u0455er.Mlp", "user.\u041clp", "us\u200ber.Mlp", "user.Mlp\n",
]  # fmt: skip


@pytest.fixture
def registry(write_project) -> Registry:
    found: Registry = write_project({"user.py": USER})
    return found


def test_hostile_targets_are_refused(registry) -> None:
    for target in HOSTILE:
        for kind in ("model", "hook", "component", "data"):
            with pytest.raises(UnknownComponentError):
                registry.find(kind, target)


def test_refusing_imports_nothing(tmp_path) -> None:
    (tmp_path / "user.py").write_text("raise SystemExit('imported')")
    script = (
        "import sys; from pathlib import Path; from epochal.registry import Registry, Project\n"
        "from epochal.errors import ConfigError\n"
        f"registry = Registry(Project(Path({str(tmp_path)!r}))); before = set(sys.modules)\n"
        f"for target in {HOSTILE!r}:\n"
        "    try: registry.find('model', target)\n"
        "    except ConfigError: continue\n"
        "    raise AssertionError(target)\n"
        "fresh = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "allowed = set(sys.stdlib_module_names) - {'runpy', 'ctypes', 'pickle'}\n"
        "assert not fresh - allowed, fresh - allowed\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_dotted_paths_are_resolved_to_the_defining_module(registry) -> None:
    for target, home in (
        ("user.Mlp", "user.Mlp"),
        ("user.make", "user.make"),
        ("user.Linear", "torch.nn.modules.linear.Linear"),
        ("torch.nn.Linear", "torch.nn.modules.linear.Linear"),
        ("torch.nn.Conv2d", "torch.nn.modules.conv.Conv2d"),
        ("torch.optim.AdamW", "torch.optim.adamw.AdamW"),
        ("torch.optim.lr_scheduler.StepLR", "torch.optim.lr_scheduler.StepLR"),
        ("torch.utils.data.TensorDataset", "torch.utils.data.dataset.TensorDataset"),
        (
            "epochal.hooks.early_stopping.EarlyStopping",
            "epochal.hooks.early_stopping.EarlyStopping",
        ),
        ("epochal.engine.interfaces.task.ModuleTask", "epochal.engine.interfaces.task.ModuleTask"),
    ):
        found = registry.find("model", target)
        assert found.dotted == home, target
        assert found.file is not None, target
        assert found.line > 0, target


def test_paths_of_earlier_versions_lead_to_the_same_components(registry) -> None:
    for old, now in (
        ("epochal.engine.task.ModuleTask", "epochal.engine.interfaces.task.ModuleTask"),
        ("epochal.engine.runner.Train", "epochal.engine.runner.Train"),
        ("epochal.engine.update.Updater", "epochal.engine.step.updater.Updater"),
        ("epochal.hooks.console.Console", "epochal.hooks.console.console.Console"),
        ("epochal.hooks.csv_log.CsvLog", "epochal.hooks.points_file.CsvLog"),
        (
            "epochal.hooks.final_weights.FinalWeights",
            "epochal.hooks.safetensors_export.FinalWeights",
        ),
        ("epochal.hooks.json_lines.JsonLines", "epochal.hooks.points_file.JsonLines"),
        ("epochal.hooks.console.progress.Console", "epochal.hooks.console.console.Console"),
        ("epochal.hooks.profiler.profiling.Profiler", "epochal.hooks.profiler.Profiler"),
        ("epochal.components.losses.bce.Bce", "epochal.components.losses.Bce"),
        ("epochal.components.optim.decays.Noam", "epochal.components.schedules.Noam"),
    ):
        found = registry.find("component", old)
        assert found.dotted == now, old
        assert registry.load(found).__name__ == found.qualname, old


def test_refusals_say_what_to_write_instead(registry) -> None:
    for target, message in (
        ("usr.Mlp", "there is no module 'usr'\n  did you mean 'user.Mlp'"),
        ("user.Mpl", "'user' has no class or function 'Mpl'\n  did you mean 'user.Mlp'"),
        ("user:Mlp", "dots separate all parts\n  write 'user.Mlp'"),
        ("torch.nn.Liner", "did you mean 'torch.nn.Linear'"),
        ("torch.nn.modulez.Linear", "did you mean 'torch.nn.modules.Linear'"),
        (
            "nowhere_at_all.X",
            "there is no module 'nowhere_at_all' in .*\n  it has: user; --user-dir",
        ),
        ("numpy.array", r"root 'numpy' is not one of the project's roots\n.*roots = \[\"numpy\"\]"),
        ("user.settings", "it is a variable"),
        ("user.system", "it is imported from 'os.system'|it comes from 'os'"),
    ):
        with pytest.raises(UnknownComponentError, match=message):
            registry.find("model", target)


def test_a_module_with_a_syntax_error_is_named(write_project) -> None:
    registry = write_project({"user.py": "class A:\n  def f(:\n"})
    with pytest.raises(UnknownComponentError, match=r"user\.py:2 cannot be parsed"):
        registry.find("model", "user.A")


def test_a_listed_root_may_be_used_and_may_be_dynamic(write_project) -> None:
    files = {
        "lib/__init__.py": "def __getattr__(name): ...\nfrom lib.real import Real\nlazy = 'Lazy'",
        "lib/real.py": "class Real: pass",
        "lib/plain.py": "class Known: pass",
    }
    registry = write_project(files, roots=("lib",))
    assert registry.find("model", "lib.Real").file is not None
    lazy = registry.find("model", "lib.Lazy")
    assert (lazy.module, lazy.qualname, lazy.file) == ("lib", "Lazy", None)
    with pytest.raises(UnknownComponentError, match=r"did you mean 'lib\.plain\.Known'"):
        registry.find("model", "lib.plain.Knwon")
    with pytest.raises(
        UnknownComponentError, match=r"'Lazy' is not a module.*\n.*your own function"
    ):
        registry.find("model", "lib.Lazy.from_pretrained")


def test_a_listed_root_that_is_not_installed_says_so(write_project) -> None:
    registry = write_project({}, roots=("not_installed_here",))
    with pytest.raises(UnknownComponentError, match="'not_installed_here' is not installed"):
        registry.find("model", "not_installed_here.models.X")


def test_a_fixed_root_that_is_not_installed_says_how_to_install_it(
    write_project, monkeypatch
) -> None:
    monkeypatch.setattr(targets, "FIXED_ROOTS", (*targets.FIXED_ROOTS, "not_installed_here"))
    message = r"'not_installed_here' is not installed(.|\n)*pip install not_installed_here"
    with pytest.raises(UnknownComponentError, match=message):
        write_project({}).find("metric", "not_installed_here.X")


def test_a_name_that_a_dynamic_root_never_mentions_is_refused(write_project) -> None:
    files = {
        "lib/__init__.py": "from lib.a import *\ndef __getattr__(name): ...",
        "lib/a.py": "__all__ = ['Real']\nclass Real: pass\nclass Reel_: pass\nReal2 = None",
    }
    registry = write_project(files, roots=("lib",))
    with pytest.raises(UnknownComponentError, match=r"did you mean 'lib\.Real'"):
        registry.find("model", "lib.Rael")


def test_a_variable_of_a_listed_root_may_be_a_class_and_a_constant_may_not(write_project) -> None:
    text = "class Real: pass\nAlias = Real\nMade = make()\nTABLE = {}"
    registry = write_project({"lib.py": text}, roots=("lib",))
    for name in ("Alias", "Made"):
        assert registry.find("model", f"lib.{name}").file is None
    with pytest.raises(UnknownComponentError, match="it is a variable"):
        registry.find("model", "lib.TABLE")


def test_a_package_that_another_one_hides_is_to_be_renamed(write_project) -> None:
    for file, target, what in (
        ("calendar/model.py", "calendar.model.Mlp", "Python's own module 'calendar' hides"),
        ("wave.py", "wave.Mlp", "Python's own module 'wave' hides"),
        ("time/__init__.py", "time.Mlp", "Python's own module 'time' hides"),
        ("torch/model.py", "torch.model.Mlp", "the installed package 'torch' hides"),
        ("torch/nn.py", "torch.nn.Mlp", "the installed package 'torch' hides"),
        ("rich/model.py", "rich.model.Mlp", "the installed package 'rich' hides"),
        ("src/wave/model.py", "wave.model.Mlp", "Python's own module 'wave' hides"),
    ):
        registry = write_project({file: "class Mlp: pass"})
        with pytest.raises(UnknownComponentError, match=what) as caught:
            registry.find("model", target)
        (problem,) = caught.value.problems
        assert problem.hint == f"give {target.split('.')[0]!r} there another name", file


def test_a_project_module_beside_an_installed_one_is_found(write_project) -> None:
    registry = write_project({"torch/nn.py": "", "rich/__init__.py": "class Mlp: pass"})
    assert registry.find("model", "torch.nn.Linear").qualname == "Linear"
    assert registry.find("model", "rich.Mlp").qualname == "Mlp"


def test_the_standard_library_is_never_offered_as_a_root(write_project) -> None:
    for target in ("os.system", "collections.Counter", "user.Counter"):
        for roots in ((), ("os", "collections")):
            files = {"user.py": "from collections import Counter"}
            registry = write_project(files, roots=roots)
            with pytest.raises(
                UnknownComponentError, match="of the standard library cannot be"
            ) as caught:
                registry.find("model", target)
            assert "roots" not in str(caught.value)
