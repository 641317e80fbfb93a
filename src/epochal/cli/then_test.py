"""``--then-test``: evaluates the best weights of a run on its test data after the training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    import argparse

    from epochal.experiment.config.check_file import CheckedConfig


def add_then_test_option(parser: argparse.ArgumentParser) -> None:
    """Declare ``--then-test``."""
    text = "evaluate the best weights on the test data afterwards, as `epochal test` does"
    parser.add_argument("--then-test", action="store_true", help=text)


def require_test_data(args: argparse.Namespace, *configs: CheckedConfig) -> None:
    """Refuse before the training what ``--then-test`` could not test after it."""
    for root in (one.report.expanded for one in configs if args.then_test):
        is_module = root.find("task.type") is not None and root.get("task.type").value == "module"
        if is_module and "test" not in root.get("data").mapping:
            place = root.get("data").place
            what = "there is no test data, which --then-test evaluates"
            raise ConfigError(Problem("data.test", what, place, "add data.test: {type: ...}"))
