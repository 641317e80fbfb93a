"""``epochal schema``: the JSON Schema of configs, or the options of a component."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from epochal import durable
from epochal.check import SECTIONS, json_schema, yaml_template
from epochal.cli.arguments import print_json
from epochal.errors import ConfigError, Problem
from epochal.records.layout.run_folders import EPOCHAL_DIR, looks_like_run_folder
from epochal.registry import Registry, find_project

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

SCHEMA_FILE = ".epochal-schema.json"
_LINE = "# yaml-language-server: $schema="
_SUFFIXES = (".yaml", ".yml")
_TOP_KEY = re.compile(r"""^["']?([\w$]+)["']?\s*:""", re.MULTILINE)
_MAIN_SECTIONS = {"model", "task", "$BASE"}
_ENVIRONMENTS = {"pyvenv.cfg", "conda-meta"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a component or section, such as EarlyStopping, AdamW, train or mypkg.model.Mlp",
    )
    parser.add_argument(
        "--template", action="store_true", help="print its options as a commented config"
    )
    parser.add_argument(
        "--install",
        nargs="*",
        type=Path,
        metavar="FILE",
        help=f"write {SCHEMA_FILE} into the project, and the line that editors look for into "
        "these YAML configs (default: all of the project)",
    )
    parser.add_argument(
        "--user-dir", type=Path, metavar="DIR", help="folder with the project's code"
    )


def execute(args: argparse.Namespace) -> int:
    """Print the schema of whole configs or the options of one component, or install the schema."""
    registry = Registry(find_project(Path.cwd(), user_dir=args.user_dir))
    if args.install is not None:
        if args.name or args.template:
            what = "--install writes the schema of whole configs"
            hint = "write epochal schema --install FILE"
            raise ConfigError(Problem("command line", what, hint=hint))
        _install(registry, args.install)
    elif args.template:
        print(yaml_template(args.name or "", registry), end="")
    else:
        print_json(json_schema(registry, args.name))
    return 0


def _install(registry: Registry, files: list[Path]) -> None:
    """Write the schema, and the line that names it into configs; print what was done."""
    folder = registry.project.dir
    for path in files:
        if path.suffix not in _SUFFIXES or not path.is_file():
            what = "not a YAML file" if path.is_file() else "no such file"
            raise ConfigError(
                Problem(str(path), what, hint="name the config files of this project")
            )
    target = folder / SCHEMA_FILE
    is_new = not target.exists()
    durable.write_bytes(target, durable.encode_json(json_schema(registry)))
    print(f"{_shown(target)}: {'written' if is_new else 'updated'}")
    configs = files or sorted(_find_configs(folder))
    for path in configs:
        print(f"{_shown(path)}: {_add_line(path, target)}")
    if not configs:
        print(f"no config found here; write as the first line of one: {_LINE}{SCHEMA_FILE}")
    print("run this command again when you change the arguments of your classes")


def _add_line(path: Path, target: Path) -> str:
    """Put the line that names the schema at the top of a config; returns what was done."""
    path = path.resolve()
    text = path.read_bytes().decode("utf-8")
    if _LINE in text:
        return "has the line already"
    end = "\r\n" if "\r\n" in text else "\n"
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    relative = Path(os.path.relpath(target.resolve(), path.parent)).as_posix()
    line = f"{_LINE}{relative}"
    mode = path.stat().st_mode
    durable.write_bytes(path, f"{mark}{line}{end}{text.removeprefix(mark)}".encode())
    path.chmod(mode)
    return f"added {line}"


def _find_configs(folder: Path) -> Iterator[Path]:
    """The YAML files below a folder whose top-level keys are sections, outside records."""
    for here, folders, files in os.walk(folder):
        names = {*folders, *files}
        is_other = names & {EPOCHAL_DIR, *_ENVIRONMENTS} or looks_like_run_folder(
            Path(here).name, names
        )
        folders[:] = [] if is_other else [name for name in folders if not name.startswith(".")]
        for name in [] if is_other else files:
            path = Path(here, name)
            if path.suffix in _SUFFIXES and _is_config(path):
                yield path


def _is_config(path: Path) -> bool:
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    keys = set(_TOP_KEY.findall(text))
    return bool(keys & _MAIN_SECTIONS) and keys <= {*SECTIONS, "$BASE", "variants", "sweep"}


def _shown(path: Path) -> str:
    path = path.absolute()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
