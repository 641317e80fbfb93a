"""The shape of the package: what is imported where, what is forbidden, what is mirrored."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from abc import ABC
from dataclasses import dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, is_typeddict

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "epochal"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "template" not in path.parts)
IMPORT_BY_NAME = {"__init__.py", "engine/__init__.py", "registry/registry.py", "cli/parser.py"}
RUN_CONFIG_CODE = "config/read_python.py"  # a .py config, by explicit choice only


EXTENSION_POINTS = {
    "epochal.engine.optim.average.Average",
    "epochal.engine.interfaces.hook.Hook",
    "epochal.engine.optim.rate.Rate",
    "epochal.engine.interfaces.metric.Metric",
    "epochal.engine.runner.Predict",
    "epochal.engine.runner.Runner",
    "epochal.engine.runner.Test",
    "epochal.engine.runner.Train",
    "epochal.engine.interfaces.schedule.Schedule",
    "epochal.engine.interfaces.task.ModuleTask",
    "epochal.engine.interfaces.task.Task",
    "epochal.engine.step.updater.Updater",
    "epochal.experiment.experiment.Experiment",
    "epochal.testing.HookConformance",
    "epochal.testing.TaskConformance",
    "epochal.testing.TinyModel",
    "epochal.testing.TinyTask",
}
"""What users subclass; everything else is an interface or final."""


@cache
def classes() -> list[type]:
    """Every class of the package."""
    names = [
        ".".join(("epochal", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in MODULES
    ]
    modules = [
        importlib.import_module(name.removesuffix(".__init__"))
        for name in names
        if not name.endswith("__main__")
    ]
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    }
    return sorted(found, key=full_name)


def full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def is_interface(kind: type) -> bool:
    """Whether nobody can make one, because it only says what others must have."""
    return getattr(kind, "_is_protocol", False) or ABC in kind.__bases__


def is_plain_data(kind: type) -> bool:
    return issubclass(kind, Enum) or is_typeddict(kind) or hasattr(kind, "_fields")


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def source_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@dataclass(frozen=True)
class Faults:
    """What the rules of this page find in a module."""

    dangers: list[str]
    writes: list[str]
    excesses: list[str]
    no_sentence: list[str]


@cache
def faults_of(path: Path) -> Faults:
    """One parse serves all rules; the tree is not kept, for it is large."""
    source = source_of(path)
    module = ast.parse(source)
    nodes = list(ast.walk(module))
    (first, *_) = (ast.get_docstring(module) or "no docstring").splitlines()
    return Faults(
        dangers=dangers(nodes),
        writes=writes(nodes),
        excesses=excesses(source, nodes),
        no_sentence=[] if first.endswith(".") else [first],
    )


def breaches(rule: Callable[[Faults], list[str]], modules: Iterable[Path]) -> dict[str, list[str]]:
    """What one rule finds, by the names of the modules."""
    each = {name_of(path): rule(faults_of(path)) for path in modules}
    return {name: faults for name, faults in each.items() if faults}


def modules_after(code: str) -> set[str]:
    """What a fresh interpreter has imported after ``code``."""
    script = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    [
        "import epochal",
        "from epochal.cli import main; main(['check', '/nowhere.yaml'])",
        "from epochal.cli import main; main(['runs', '--runs-dir', '/nowhere'])",
        "from epochal.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
        "import epochal; epochal.parse_args",
    ],
)
def test_reading_configs_and_runs_imports_neither_torch_nor_numpy(code: str) -> None:
    assert not {"torch", "numpy"} & modules_after(code)


PICKLES = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
RUNS_TEXT = {"eval", "exec", "compile", "__import__"}
FORBIDDEN = {"torch.load", "torch.save", "torch.package", "os.system", "os.popen"} | {
    f"{module}.{name}"
    for module in ("builtins", "subprocess")
    for name in (*RUNS_TEXT, "getoutput")
}


def dangers(nodes: Iterable[ast.AST]) -> list[str]:
    """What evaluates text, pickles or starts a shell."""
    found = []
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in RUNS_TEXT:
                found.append(name)
            case ast.Import(names=aliases):
                found += [one.name for one in aliases if one.name.partition(".")[0] in PICKLES]
            case ast.ImportFrom(module=str(module), names=aliases):
                names = [module, *(f"{module}.{one.name}" for one in aliases)]
                found += [n for n in names if n in FORBIDDEN or n.partition(".")[0] in PICKLES]
            case ast.keyword(arg="shell"):
                found.append("a shell string")
            case ast.Attribute() if ast.unparse(node) in FORBIDDEN:
                found.append(ast.unparse(node))
    return found


def test_no_module_evaluates_pickles_or_starts_a_shell() -> None:
    assert breaches(attrgetter("dangers"), MODULES) == {}
    run_files = [name_of(path) for path in MODULES if "import runpy" in source_of(path)]
    assert run_files == [RUN_CONFIG_CODE]


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "from torch import load",
        "import torch\ntorch.load('x')",
        "import torch\nread = torch.load",
        "eval('1')",
        "exec('1')",
        "__import__('os')",
        "import os\nos.system('ls')",
        "from os import popen",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "from joblib.externals import loky",
    ],
)
def test_gate_notices_what_it_is_there_for(source: str) -> None:
    assert dangers(ast.walk(ast.parse(source)))


WRITE_WHAT_MAY_BE_LOST = {
    "cli/verbs/new.py",  # a new project, which can be made again
    "records/code/restore.py",  # a copy of what a record holds, which can be made again
    "engine/process/watchdog.py",  # stacks of a hang, written while nothing else can be relied on
    "experiment/record/logs.py",  # the null device
}


def writes(nodes: Iterable[ast.AST]) -> list[str]:
    """Calls that write files, and are not those of ``durable``."""
    found = []
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="write_text" | "write_bytes")):
                # What records.clean leaves without secrets, durable writes.
                if ast.unparse(owner) not in {"durable", "staged", "clean"}:
                    found.append(ast.unparse(node))
            case ast.Call(func=ast.Attribute(attr="open"), args=[ast.Constant(value=mode), *_]):
                if set(str(mode)) & set("wax+"):
                    found.append(ast.unparse(node))
    return found


def test_only_durable_writes_files() -> None:
    others = [
        path
        for path in MODULES
        if path.parent.name != "durable" and name_of(path) not in WRITE_WHAT_MAY_BE_LOST
    ]
    assert breaches(attrgetter("writes"), others) == {}


def test_only_the_registry_imports_what_a_config_names() -> None:
    users = {name_of(path) for path in MODULES if "import_module" in source_of(path)}
    assert users - IMPORT_BY_NAME == set()


def test_every_module_starts_with_one_sentence() -> None:
    assert breaches(attrgetter("no_sentence"), MODULES) == {}


def test_every_module_has_a_test_that_mirrors_it() -> None:
    missing = []
    for path in MODULES:
        relative = path.relative_to(PACKAGE)
        mirror = ROOT / "tests" / "unit" / relative.parent / f"test_{relative.name}"
        if path.name not in {"__init__.py", "__main__.py"} and not mirror.exists():
            missing.append(mirror.relative_to(ROOT).as_posix())
    assert missing == []


def excesses(source: str, nodes: Iterable[ast.AST]) -> list[str]:
    """What of a module is larger than the house allows."""
    found = ["more than 400 lines"] if source.count("\n") > 400 else []
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if (node.end_lineno or 0) - node.lineno >= 60:
                found.append(f"{node.name} is too long")
        elif isinstance(node, ast.ClassDef) and node.name != "Hook":  # one method per event
            methods = sum(isinstance(item, ast.FunctionDef) for item in node.body)
            if methods > 15:
                found.append(f"{node.name} has {methods} methods")
    return found


def test_shapes_stay_within_the_house_limits() -> None:
    assert breaches(attrgetter("excesses"), MODULES) == {}


def test_every_class_is_an_extension_point_an_interface_or_final() -> None:
    loose = [
        full_name(kind)
        for kind in classes()
        if full_name(kind) not in EXTENSION_POINTS
        and not (is_interface(kind) or is_plain_data(kind) or issubclass(kind, BaseException))
        and "__final__" not in vars(kind)
    ]
    assert loose == [], "mark them with typing.final"


def test_no_class_overrides_what_another_one_does() -> None:
    overridden = []
    for kind in classes():
        for base in kind.__mro__[1:]:
            if not base.__module__.startswith("epochal") or full_name(base) in EXTENSION_POINTS:
                continue
            if getattr(base, "_is_protocol", False) or issubclass(base, BaseException):
                continue
            overridden += [
                f"{full_name(kind)}.{name}"
                for name, method in vars(base).items()
                if name in vars(kind)
                and isinstance(method, FunctionType)
                and not getattr(method, "__isabstractmethod__", False)
            ]
    assert overridden == []


def test_extension_points_exist() -> None:
    assert {full_name(kind) for kind in classes()} >= EXTENSION_POINTS


def test_files_outside_of_packages_have_names_of_their_own() -> None:
    """Pytest imports such test files by name alone, and refuses a second one."""
    tests = ROOT / "tests"
    paths = [path for path in tests.rglob("*.py") if not path.with_name("__init__.py").exists()]
    found: dict[str, list[str]] = {}
    for path in paths:
        if "data" not in path.relative_to(tests).parts and path.name != "conftest.py":
            found.setdefault(path.name, []).append(path.relative_to(tests).as_posix())
    assert [names for names in found.values() if len(names) > 1] == []
