"""Checks the configs that a command names, and prints every mistake before anything is started."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from epochal.experiment.config.check_file import check_file
from epochal.text.error_output import print_error
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from epochal.experiment.config.check_file import CheckedConfig
    from epochal.experiment.config.choices import Choices


def check_configs(
    files: Sequence[Path],
    overrides: Sequence[str],
    choices: Choices,
    *,
    outcome: str,
) -> tuple[list[CheckedConfig], int]:
    """The checked configs, and an exit code that is not 0 if there are mistakes.

    Every mistake is printed once, even if several files share it; then ``outcome`` is printed.
    """
    checked = [check_file(path, overrides, choices) for path in files]
    wrong = [one for one in checked if one.problems]
    for problem in dict.fromkeys(problem for one in wrong for problem in one.problems):
        print_error(f"{problem}\n")
    for one in wrong:
        print_error(f"{one.path}: {format_count(len(one.problems), 'mistake')}")
    if wrong and outcome:
        print(outcome, file=sys.stderr)
    configs = [config for one in checked for config in one.checked]
    return configs, wrong[0].exit_code if wrong else 0
