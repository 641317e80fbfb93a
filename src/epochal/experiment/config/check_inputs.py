"""Checks what an experiment was given, once; everything later is built from the result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from epochal.engine import Runner, Train
from epochal.errors import Problem
from epochal.experiment.config.check_file import check_config, drop_sections

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.check import CheckReport
    from epochal.config import Config, Node
    from epochal.experiment.config.check_file import CheckedConfig
    from epochal.experiment.config.inputs import ExperimentInputs
    from epochal.registry import Registry

OPTIMIZER_HINT = "add optim: {type: AdamW, lr: 1e-3}"
_SECTIONS_BUILT_BY = {"build_task": "task", "build_model": "model", "build_optimizer": "optim"}


@final
@dataclass(frozen=True)
class CheckedInputs:
    """What an experiment was given, and the result of checking it."""

    inputs: ExperimentInputs
    """Without the sections that Python gives instead."""

    report: CheckReport
    registry: Registry
    runner: str | None = None
    """The runner that was asked for instead of the config's."""

    def expand(self, config: Config, project_dir: Path | None) -> Node:
        """Another config of the same experiment, such as a recorded one, with all defaults."""
        choices = self.inputs.choices | {"user_dir": self.inputs.user_dir or project_dir}
        other = replace(self.inputs, config=config, choices=choices, checked=None)
        return check_inputs(other, self.runner).report.expanded


def check_inputs(inputs: ExperimentInputs, runner: str | None) -> CheckedInputs:
    """The inputs with every mistake of the config, for the runner that it or ``runner`` names.

    A config that ``check_file`` has checked for the same runner is not checked again.
    """
    chosen = runner or ("test" if inputs.is_test else None)
    checked = inputs.checked
    if checked is None or chosen is not None:
        inputs = _drop_replaced(inputs, runner=chosen)
        checked = _check(inputs, chosen)
    inputs = replace(inputs, config=checked.config)
    return CheckedInputs(inputs, checked.report, checked.registry, runner)


def _drop_replaced(inputs: ExperimentInputs, *, runner: str | None = None) -> ExperimentInputs:
    """The inputs without the sections whose parts are given or made by ``prepare_*``.

    A given runner trains: it is left out where ``runner`` asks for something else.
    """
    parts = dict(inputs.given.parts)
    if runner is not None and runner != "train":
        parts.pop("runner", None)
    gone = {*parts, *inputs.given.prepared} - {"data"}
    root = inputs.config.root
    return replace(
        inputs,
        given=replace(inputs.given, parts=parts),
        config=drop_sections(inputs.config, gone, parts.get("data")),
        replaced={name: root.mapping[name].to_plain() for name in gone if name in root.mapping},
    )


def _check(inputs: ExperimentInputs, runner: str | None) -> CheckedConfig:
    given = inputs.given
    sections = {*given.sections}
    sections |= {name for step, name in _SECTIONS_BUILT_BY.items() if step in given.overridden}
    own: Runner | None = given.parts.get("runner")
    has_optimizer = "optim" in {*sections, *inputs.config.root.mapping}
    if own is not None:  # the check knows runners by name only
        runner = "train" if isinstance(own, Train) and has_optimizer else "test"
    checked = check_config(inputs.config, user_dir=inputs.user_dir, runner=runner, given=sections)
    if own is None:
        return checked
    report = checked.report
    entries = {name: node for name, node in report.expanded.mapping.items() if name != "runner"}
    problems = report.problems
    if own.needs_optimizer and not has_optimizer:
        what = f"missing; the runner {type(own).__name__!r} needs it"
        problems = (*problems, Problem("optim", what, hint=OPTIMIZER_HINT))
    expanded = replace(report.expanded, value=MappingProxyType(entries))
    return replace(checked, report=replace(report, expanded=expanded, problems=problems))
