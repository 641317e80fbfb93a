"""The gates run, and the guide, the README and the template keep their promises."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import epochal
from epochal.engine.interfaces.task import OPTIONAL_METHODS, REQUIRED_METHODS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "epochal"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "template" not in path.parts)
TEMPLATE = PACKAGE / "cli" / "template"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
ONLY_CALLER = "engine/step/task_calls.py"
CALLED_BY_OTHERS_TOO = {"to", "state_dict", "load_state_dict", "postprocess"}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def python(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], input=text, cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_lower_layers_never_import_higher_ones() -> None:
    done = python(
        "-c", "from importlinter.cli import lint_imports; raise SystemExit(lint_imports())"
    )
    assert done.returncode == 0, done.stdout
    assert "Layers point downwards KEPT" in done.stdout


def test_every_package_is_in_the_enforced_layers() -> None:
    contracts = SETTINGS["importlinter"]["contracts"]
    (layers,) = [one for one in contracts if one.get("containers") == ["epochal"]]
    named = {name.strip(" ()") for row in layers["layers"] for name in row.split("|")}
    folders = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert folders - {"__init__", "__main__", "__pycache__", "py"} <= named
    assert layers["exhaustive"]


def test_gates_run_before_the_tests_and_in_continuous_integration() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    gates = makefile.partition("\ncode-check:")[2].partition("\n\n")[0]
    tools = ("ruff format --check", "ruff check", "mypy", "lint-imports", "typos", "deptry")
    for tool in tools:
        assert tool in gates
    assert "\ncheck: code-check web-check" in makefile
    tests = makefile.partition("\ntest:")[2].partition("\n\n")[0]
    assert tests.index("jobs=2 check") < tests.index("pytest")
    commands = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert {"make test", "make test-long"} <= {*commands}
    assert SETTINGS["mypy"]["strict"] is True


FORBIDDEN = {
    "RUF012": "class A:\n    names = []\n",  # such a list must be marked as a ClassVar
    "ANN001": "def double(x):\n    return x\n",
    "D103": "def triple(x: int) -> int:\n    return x\n",
    "PTH118": "import os.path\n\nhere = os.path.join('a', 'b')\n",
    "TID252": "from . import errors\n",
}


def test_linter_notices_what_the_house_rules_forbid() -> None:
    words = ["ruff", "check", "--output-format=json", "--stdin-filename=src/epochal/x.py", "-"]
    code = "\n\n".join(('"""A module."""', *FORBIDDEN.values()))
    found = json.loads(python("-m", *words, text=code).stdout)
    assert FORBIDDEN.keys() - {one["code"] for one in found} == set()


def parsed(path: Path, *words: str) -> ast.Module:
    """The parsed module; an empty one if its text has none of the words, which is quick to see."""
    text = path.read_text(encoding="utf-8")
    return ast.parse(text if any(word in text for word in words) else "")


def test_loggers_are_named_after_their_module() -> None:
    wrong = []
    for path in MODULES:
        module = "epochal." + name_of(path).removesuffix(".py").replace("/", ".")
        for node in parsed(path, "getLogger").body:
            if isinstance(node, ast.Assign) and "getLogger" in ast.unparse(node.value):
                (name,) = node.value.args  # type: ignore[attr-defined]  # the call just found
                package = isinstance(name, ast.Constant) and module.startswith(f"{name.value}.")
                if not package and ast.unparse(name) != "__name__":
                    wrong.append(f"{name_of(path)}: {ast.unparse(node)}")
    assert wrong == []


def test_task_methods_are_called_in_one_place_only() -> None:
    methods = {*REQUIRED_METHODS, *OPTIONAL_METHODS} - CALLED_BY_OTHERS_TOO
    calls = [
        f"{name_of(path)}: {ast.unparse(node)}"
        for path in MODULES
        if name_of(path) != ONLY_CALLER
        for node in ast.walk(parsed(path, *methods))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in methods
    ]
    assert calls == []


def test_guide_says_when_to_use_typing() -> None:
    guide = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    answer = guide.partition("\n## When to use typing?\n")[2].partition("\n## ")[0]
    assert "mypy strict" in answer
    assert "shapes" in answer


def test_template_comments_on_shapes() -> None:
    for name in ("model.py.tmpl", "task.py.tmpl"):
        text = (TEMPLATE / "{{package}}" / name).read_text(encoding="utf-8")
        assert any("# (" in line or "(B" in line for line in text.splitlines()), name


def test_task_of_models_with_a_loss_has_a_second_name() -> None:
    assert epochal.TaskFlow is epochal.ModuleTask


def test_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert {"    make demo ", "    make test "} <= {line[:14] for line in lines}
