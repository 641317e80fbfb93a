"""``--trust``: asks before verbs execute the code of a run that is not part of this project."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from epochal.errors import UntrustedCodeError
from epochal.experiment.config.choices import add_choices, add_options
from epochal.text.command import epochal_command
from epochal.text.terminal import is_confirmed, print_wrapped

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from epochal.engine import RunResult


def add_trust_options(parser: argparse.ArgumentParser) -> None:
    """Declare ``--trust``, and ``--user-dir`` for other code."""
    text = "execute the run's code even if it is not part of this project"
    add_options(parser, {"--trust": text})
    add_choices(parser, "--user-dir")


def execute_trusted(args: argparse.Namespace, execute: Callable[[bool], RunResult]) -> RunResult:
    """Call ``execute`` with whether the user trusts the run's code; asks for that if necessary.

    Raises:
        UntrustedCodeError: The user does not trust the code, or cannot be asked.
    """
    try:
        return execute(args.trust)
    except UntrustedCodeError as error:
        command = f"{epochal_command()} {shlex.join([*args.typed, '--trust'])}"
        hint = f"if you trust that code: {command}"
        if not sys.stdin.isatty():
            raise UntrustedCodeError(error.what, hint) from None
        print_wrapped([error.what])
        if not is_confirmed("execute that code?"):
            raise UntrustedCodeError("nothing was executed", hint) from None
    return execute(True)
