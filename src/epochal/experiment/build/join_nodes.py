"""Joins the machines that were chosen for a run, if they have the same code."""

from __future__ import annotations

import hashlib
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.distributed.node_group import NodeGroup, join_nodes, single_node
from epochal.experiment.build.device import count_nodes
from epochal.experiment.config.check_file import CheckedConfig
from epochal.experiment.resume.changes import digest_config
from epochal.records.code.code_manifest import read_manifest
from epochal.records.code.code_snapshot import CodeSnapshot
from epochal.records.code.file_kind import get_file_kind
from epochal.records.code.framework import digest_package, get_package_dir
from epochal.records.folder.machine import own_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from epochal.experiment.config.choices import Choices

_DIGITS = 8


def join_chosen_nodes(
    source: object, overrides: Sequence[str], choices: Choices, tell: Callable[[str], None]
) -> NodeGroup:
    """The machines of a run, or this one alone; ``tell`` shows a line to the user.

    Raises:
        ConfigError: The others cannot be reached, or have another config or other code.
    """
    least, largest = count_nodes(choices)
    endpoint = choices.get("rdzv_endpoint")
    if endpoint is None:
        return single_node()
    facts = _describe_code(source, overrides, choices)
    return join_nodes(endpoint, min_nodes=least, max_nodes=largest, facts=facts, tell=tell)


def _describe_code(source: object, overrides: Sequence[str], choices: Choices) -> dict[str, str]:
    """What must be equal on all machines, by its name in messages."""
    digest = digest_package(get_package_dir())[:_DIGITS]
    facts = {"Epochal": f"{own_version()} ({digest})", "PyTorch": version("torch")}
    frozen = choices.get("frozen")
    if frozen is not None:
        return facts | {"the frozen code": str(frozen.snapshot)}
    facts |= {"the overrides": " ".join(overrides)}
    if isinstance(source, CheckedConfig):
        facts["the config"] = digest_config(source.report.expanded.to_plain())[:_DIGITS]
        facts["the code of the project"] = _digest_code(source.report.project.dir)
    return facts


def _digest_code(project: Path) -> str:
    """A digest of the code below a folder; data that runs may write there do not count."""
    with tempfile.TemporaryDirectory(prefix="epochal-code-") as folder:
        CodeSnapshot(project=project, run_dir=Path(folder)).take()
        manifest = read_manifest(Path(folder))
    digest = hashlib.sha256()
    for file in () if manifest is None else manifest.files:
        if get_file_kind(file.path) == "code":
            digest.update(f"{file.path}\0{file.sha256}\n".encode())
    return digest.hexdigest()[:_DIGITS]
