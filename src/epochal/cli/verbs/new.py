"""``epochal new``: creates a small project that is ready to run."""

from __future__ import annotations

import keyword
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.errors import ConfigError, Problem
from epochal.text.command import absolute_command
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    import argparse

TEMPLATE = Path(__file__).parents[1] / "template"
# The project comes first on the import path: its package would hide these.
_TAKEN = {*sys.stdlib_module_names, "epochal", "numpy", "safetensors", "torch"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    parser.add_argument(
        "path",
        type=Path,
        metavar="NAME",
        help="folder to create; its name becomes the name of the package",
    )


def execute(args: argparse.Namespace) -> int:
    """Write the project and print the next commands."""
    written = write_project(args.path)
    for path in written:
        print(f"  {args.path / path}")
    print(f"\nwrote {format_count(len(written), 'file')}; next\n")
    command = absolute_command()
    print(f"  cd {shlex.quote(str(args.path))}")
    print(f"  {command} check config.yaml\n  {command} run config.yaml")
    return 0


def write_project(target: Path) -> list[Path]:
    """Write the template to ``target``; returns the files written, relative to it.

    Raises:
        ConfigError: The folder is not empty, or its name cannot name a package.
    """
    name = target.resolve().name
    package = re.sub(r"\W+", "_", name).strip("_").lower()
    if package in _TAKEN:
        hint = f"choose another name: epochal new my-{package}"
        raise ConfigError(
            Problem(str(target), f"{package!r} is the name of another package", hint=hint)
        )
    if not package.isidentifier() or keyword.iskeyword(package):
        hint = "start with a letter and use letters, digits, - and _: epochal new myproject"
        raise ConfigError(Problem(str(target), f"{name!r} cannot name a project", hint=hint))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        hint = "choose another name, or empty the folder first"
        raise ConfigError(Problem(str(target), "exists already and is not empty", hint=hint))
    distribution = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "project"  # what pip accepts
    values = {"{{name}}": name, "{{package}}": package, "{{distribution}}": distribution}
    written = []
    for source in sorted(path for path in TEMPLATE.rglob("*") if path.is_file()):
        if "__pycache__" in source.parts:
            continue
        relative = Path(_fill(str(source.relative_to(TEMPLATE)), values).removesuffix(".tmpl"))
        path = target / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_fill(source.read_text(encoding="utf-8"), values), encoding="utf-8")
        written.append(relative)
    return written


def _fill(text: str, values: dict[str, str]) -> str:
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text
