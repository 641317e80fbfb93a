"""The shape of the package: its folders, imports, classes, and what code may not do."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from abc import ABC
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from functools import cache
from graphlib import CycleError, TopologicalSorter
from inspect import isbuiltin, isfunction
from operator import attrgetter
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, is_typeddict

import pytest

from epochal.testing import tiny_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "epochal"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "template" not in path.parts)
IMPORT_BY_NAME = {
    "__init__.py",
    "cli/parser.py",
    "cli/verbs/tools/completion.py",  # all verbs
    "engine/__init__.py",
    "launch/fork_server.py",  # torch and Epochal
    "records/__init__.py",
    "registry/registry.py",
}
RUN_MODULES = [
    "config/read_python.py",  # a .py config, by explicit choice only
    "launch/fork_server.py",  # the module of a command, as the interpreter does
]


EXTENSION_POINTS = {
    "epochal.data.datasets.ListDataset",
    "epochal.data.pipe.Pipe",
    "epochal.adapters.accelerate.AccelerateExperiment",
    "epochal.adapters.lightning.LightningExperiment",
    "epochal.engine.interfaces.average.Average",
    "epochal.engine.interfaces.hook.Hook",
    "epochal.engine.optim.rate.Rate",
    "epochal.engine.interfaces.metric.Metric",
    "epochal.engine.interfaces.output_stage.EvaluationStage",
    "epochal.engine.interfaces.output_stage.OutputStage",
    "epochal.engine.runner.Predict",
    "epochal.engine.runner.Runner",
    "epochal.engine.runner.Test",
    "epochal.engine.runner.Train",
    "epochal.engine.interfaces.schedule.Schedule",
    "epochal.engine.interfaces.task.ModuleTask",
    "epochal.engine.interfaces.task.Task",
    "epochal.engine.step.updater.Updater",
    "epochal.engine.tracking.mirror.Sink",
    "epochal.engine.tracking.tracker.Tracker",
    "epochal.experiment.experiment.Experiment",
    "epochal.testing.HookConformance",
    "epochal.testing.TaskConformance",
    "epochal.testing.TinyModel",
    "epochal.testing.TinyTask",
}
"""Classes that users subclass; every other class is an interface or final."""


@cache
def classes() -> list[type]:
    """Every class of the package."""
    modules = [
        importlib.import_module(module_name(path)) for path in MODULES if path.name != "__main__.py"
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
    """Whether it has no instances and only says what other classes must have."""
    return getattr(kind, "_is_protocol", False) or ABC in kind.__bases__


def is_plain_data(kind: type) -> bool:
    return issubclass(kind, Enum) or is_typeddict(kind) or hasattr(kind, "_fields")


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


NAMED = {module_name(path): path for path in MODULES}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def source_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@dataclass(frozen=True)
class Findings:
    """What the rules of this file read in a module."""

    dangers: list[str]
    writes: list[str]
    no_sentence: list[str]
    imports: set[str]


@cache
def findings_of(path: Path) -> Findings:
    """One parse for all rules; the tree is too large to keep."""
    module = ast.parse(source_of(path))
    nodes = list(ast.walk(module))
    (first, *_) = (ast.get_docstring(module) or "no docstring").splitlines()
    return Findings(
        dangers=dangers(nodes),
        writes=writes(nodes),
        no_sentence=[] if first.endswith(".") else [first],
        imports=imported_modules(nodes),
    )


def faults(rule: Callable[[Findings], list[str]], modules: Iterable[Path]) -> dict[str, list[str]]:
    """What one rule finds, by module."""
    found = {name_of(path): rule(findings_of(path)) for path in modules}
    return {name: wrong for name, wrong in found.items() if wrong}


READING = """
import sys
import epochal
epochal.parse_args
from epochal.cli import main
main(["check", "/nowhere.yaml"])
main(["runs", "--runs-dir", "/nowhere"])
epochal.runs(root="/nowhere")
try:
    main(["--help"])
except SystemExit:
    print({"torch", "numpy"} & {*sys.modules})
"""


def test_reading_configs_and_runs_imports_neither_torch_nor_numpy() -> None:
    words = [sys.executable, "-c", READING]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()"


PICKLES = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
RUNS_TEXT = {"eval", "exec", "compile", "__import__"}
FORBIDDEN = {"torch.load", "torch.save", "torch.package", "os.system", "os.popen"} | {
    f"{module}.{name}"
    for module in ("builtins", "subprocess")
    for name in (*RUNS_TEXT, "getoutput")
}
FORBIDDEN_ENDS = {name.rpartition(".")[2] for name in FORBIDDEN}  # to unparse few attributes


def dangers(nodes: Iterable[ast.AST]) -> list[str]:
    """Calls and imports that evaluate text, pickle or start a shell."""
    found = []
    safe: set[ast.AST] = set()  # calls come before their parts
    for node in nodes:
        match node:
            case ast.Call(func=function, keywords=keywords) if any(
                one.arg == "weights_only" and ast.unparse(one.value) == "True" for one in keywords
            ):
                safe.add(function)
            case ast.Call(func=ast.Name(id=name)) if name in RUNS_TEXT:
                found.append(name)
            case ast.Import(names=aliases):
                found += [one.name for one in aliases if one.name.partition(".")[0] in PICKLES]
            case ast.ImportFrom(module=str(module), names=aliases):
                names = [module, *(f"{module}.{one.name}" for one in aliases)]
                found += [n for n in names if n in FORBIDDEN or n.partition(".")[0] in PICKLES]
            case ast.keyword(arg="shell"):
                found.append("a shell string")
            case ast.Attribute(attr=name) if (
                name in FORBIDDEN_ENDS and ast.unparse(node) in FORBIDDEN and node not in safe
            ):
                found.append(ast.unparse(node))
    return found


def test_no_module_evaluates_pickles_or_starts_a_shell() -> None:
    assert faults(attrgetter("dangers"), MODULES) == {}
    run_files = [name_of(path) for path in MODULES if "import runpy" in source_of(path)]
    assert run_files == RUN_MODULES


DANGEROUS = (
    "import pickle",
    "import pickle as p",
    "from pickle import loads",
    "from torch import load",
    "import torch\ntorch.load('x')",
    "import torch\ntorch.load('x', weights_only=False)",
    "import torch\nread = torch.load",
    "eval('1')",
    "exec('1')",
    "__import__('os')",
    "import os\nos.system('ls')",
    "from os import popen",
    "import subprocess\nsubprocess.run('ls', shell=True)",
    "from joblib.externals import loky",
)


def test_every_dangerous_call_is_noticed() -> None:
    assert [source for source in DANGEROUS if not dangers(ast.walk(ast.parse(source)))] == []
    assert dangers(ast.walk(ast.parse("torch.load('x', weights_only=True)"))) == []


WRITE_DISPOSABLE_FILES = {
    "cli/verbs/new.py",  # a new project
    "records/code/restore.py",  # a copy of what a record holds
    "records/code/framework.py",  # the same, of Epochal itself
    "engine/process/watchdog.py",  # stacks of a hang, when nothing else may work
    "engine/process/crash_log.py",  # the stack of a crash, written by the dying process
    "engine/process/worker_reads.py",  # the same, of a loader worker
    "text/terminal.py",  # the null device
    "data/caching.py",  # a cache, which is written again if it is missing
    "launch/pool/local_executor.py",  # the output of a process, which writes there itself
}


def writes(nodes: Iterable[ast.AST]) -> list[str]:
    """Calls that write files without ``durable``."""
    found = []
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="write_text" | "write_bytes")):
                # records.folder.redacted removes secrets and lets durable write.
                if ast.unparse(owner) not in {"durable", "staged", "redacted"}:
                    found.append(ast.unparse(node))
            case ast.Call(func=ast.Attribute(attr="open"), args=[ast.Constant(value=mode), *_]):
                if set(str(mode)) & set("wax+"):
                    found.append(ast.unparse(node))
    return found


def test_only_durable_writes_files() -> None:
    others = [
        path
        for path in MODULES
        if path.parent.name != "durable" and name_of(path) not in WRITE_DISPOSABLE_FILES
    ]
    assert faults(attrgetter("writes"), others) == {}


def test_only_the_registry_imports_what_a_config_names() -> None:
    users = {name_of(path) for path in MODULES if "import_module" in source_of(path)}
    assert users - IMPORT_BY_NAME == set()


def test_every_module_starts_with_one_sentence() -> None:
    assert faults(attrgetter("no_sentence"), MODULES) == {}


ODD_WORDS = re.compile(
    r"\b(somebody|anybody|nobody|whoever|anew|hence|lest|as far as|go on|goes on|going on"
    r"|went back)\b",
    re.IGNORECASE,
)


def test_text_for_readers_is_plain_english() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = {
        path.relative_to(ROOT).as_posix(): words
        for path in [*MODULES, *pages]
        if (words := ODD_WORDS.findall(source_of(path)))
    }
    assert found == {}, "see Plain English in AGENTS.md"


MAX_MODULES = 25
"""Modules in one folder: a larger folder holds more than one idea."""


def test_no_folder_has_too_many_modules() -> None:
    counts = Counter(path.parent for path in MODULES if path.name != "__init__.py")
    assert {name_of(path): count for path, count in counts.items() if count > MAX_MODULES} == {}


def folder_imports() -> dict[str, set[str]]:
    """The folders that each folder imports from, typed imports included.

    A module in the root of the package counts as a folder; what a folder exports does not count.
    """

    def folder_of(module: str) -> str:
        path = NAMED[module]
        is_folder = path.name == "__init__.py" or path.parent == PACKAGE
        return module if is_folder else module.rpartition(".")[0]

    found: dict[str, set[str]] = {}
    for module, path in NAMED.items():
        imports = found.setdefault(folder_of(module), set())
        for target in findings_of(path).imports:
            is_export = path.name == "__init__.py" and target.startswith(f"{module}.")
            if not is_export and folder_of(target) != folder_of(module):
                imports.add(folder_of(target))
    return found


def imported_modules(nodes: Iterable[ast.AST]) -> set[str]:
    """The modules of this package that a module imports, in functions and for types too."""
    found = set()
    for node in nodes:
        match node:
            case ast.Import(names=names):
                found |= {name.name for name in names}
            case ast.ImportFrom(module=str(module), names=names):
                below = {f"{module}.{name.name}" for name in names}
                found |= below & NAMED.keys()
                found |= {module} if below - NAMED.keys() else set()
    return found & NAMED.keys()


def test_folders_do_not_import_each_other_in_a_circle() -> None:
    graph = folder_imports()
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" is imported by ".join(error.args[1]))


def test_no_class_name_is_defined_twice() -> None:
    names: dict[str, list[str]] = {}
    for kind in classes():
        names.setdefault(kind.__name__, []).append(full_name(kind))
    assert [found for found in names.values() if len(found) > 1] == []


SHARED_MODULE_NAMES = {
    "average", "backlog", "experiment_class", "losses", "mailbox", "metrics", "monitor",
    "pool", "result_tables", "run", "schedule", "trust",
}  # fmt: skip
"""Module names that several folders use for the same idea, such as a section and its checks."""


def test_module_names_recur_only_for_the_same_idea() -> None:
    verbs = {path.stem for path in (PACKAGE / "cli" / "verbs").rglob("*.py")}
    counts = Counter(path.stem for path in MODULES if path.name != "__init__.py")
    recurring = {name for name, count in counts.items() if count > 1}
    assert recurring - verbs - SHARED_MODULE_NAMES == set(), "give one of them a longer name"
    assert recurring >= SHARED_MODULE_NAMES - verbs, "remove names that are used once"


OPEN_PARTS = {"task", "model", "optimizer", "schedule", "average", "updater"}
"""Parts of a run that users write, and that may have any attribute."""


def unknown_attributes(source: str, run: object) -> list[str]:
    """What code assigns to ``run.x`` or ``run.x.y`` that a run does not have."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)):
            continue
        first, *path = ast.unparse(node).split(".")
        if first == "run" and all(part.isidentifier() for part in path) and not is_known(run, path):
            found.append(f"{ast.unparse(node)}, line {node.lineno}")
    return found


def is_known(run: object, path: list[str]) -> bool:
    """Whether following attributes from a run ends at one that it has, or at a user's object."""
    for index, name in enumerate(path):
        if (index == 1 and path[0] in OPEN_PARTS) or isfunction(run) or isbuiltin(run):
            return True  # a user's object, or a function that the test has replaced by an object
        if not (hasattr(run, name) or name in getattr(type(run), "__annotations__", {})):
            return False
        run = getattr(run, name, None)
    return True


def test_tests_assign_only_attributes_that_a_run_has() -> None:
    run = tiny_run()
    files = [path for path in (ROOT / "tests").rglob("*.py") if "data" not in path.parts]
    found = {
        path.relative_to(ROOT).as_posix(): unknown
        for path in files
        if "run." in (source := source_of(path)) and (unknown := unknown_attributes(source, run))
    }
    assert found == {}, "the assignment has no effect: the name is misspelt or was renamed"


def test_misspelt_attribute_of_a_run_is_noticed() -> None:
    source = "run.steps = 3\nrun.feed.limt = 2\nrun.feed.limit = 2\nrun.task.anything = 1\n"
    assert unknown_attributes(source, tiny_run()) == ["run.steps, line 1", "run.feed.limt, line 2"]


def test_every_class_is_an_extension_point_an_interface_or_final() -> None:
    loose = [
        full_name(kind)
        for kind in classes()
        if full_name(kind) not in EXTENSION_POINTS
        and not (is_interface(kind) or is_plain_data(kind) or issubclass(kind, BaseException))
        and "__final__" not in vars(kind)
    ]
    assert loose == [], "mark them with typing.final"


def test_no_class_overrides_a_concrete_method() -> None:
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


def test_test_files_outside_packages_have_unique_names() -> None:
    """Pytest imports such files by name alone and refuses a second one."""
    tests = ROOT / "tests"
    paths = [path for path in tests.rglob("*.py") if not path.with_name("__init__.py").exists()]
    found: dict[str, list[str]] = {}
    for path in paths:
        if "data" not in path.relative_to(tests).parts and path.name != "conftest.py":
            found.setdefault(path.name, []).append(path.relative_to(tests).as_posix())
    assert [names for names in found.values() if len(names) > 1] == []


def _missing_names(path: Path) -> list[str]:
    """Names that a file imports from Epochal and that Epochal does not define."""
    missing = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] != "epochal":
            continue
        for name in (alias.name for alias in node.names):
            try:
                found = hasattr(importlib.import_module(node.module or ""), name)
                found = found or bool(importlib.util.find_spec(f"{node.module}.{name}"))
            except ModuleNotFoundError:
                found = False
            if not found:
                missing.append(f"{path.name}:{node.lineno}: {node.module}.{name}")
    return missing


def test_names_that_benchmarks_and_examples_import_exist(tmp_path: Path) -> None:
    files = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    assert [name for path in files for name in _missing_names(path)] == []
    (tmp_path / "wrong.py").write_text("from epochal.config import load, lode\n")
    assert _missing_names(tmp_path / "wrong.py") == ["wrong.py:1: epochal.config.lode"]
