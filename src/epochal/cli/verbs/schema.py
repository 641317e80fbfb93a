"""``epochal schema``: the JSON Schema of configs, or the options of a component."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.check import json_schema, yaml_template
from epochal.registry import Registry, find_project

if TYPE_CHECKING:
    import argparse


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
        "--user-dir", type=Path, metavar="DIR", help="folder with the project's code"
    )


def execute(args: argparse.Namespace) -> int:
    """Print the schema of whole configs, or the options of one component."""
    registry = Registry(find_project(Path.cwd(), user_dir=args.user_dir))
    if args.template:
        print(yaml_template(args.name or "", registry), end="")
    else:
        print(json.dumps(json_schema(registry, args.name), indent=2))
    return 0
