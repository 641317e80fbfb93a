"""Inspect the run that an experiment builds."""

from __future__ import annotations

from typing import Any

import epochal as ep


class Look(ep.Hook):
    """Keeps the result of a function of the assembled run."""

    def __init__(self, look: Any) -> None:
        self.look = look

    def run_start(self, run: ep.Run) -> None:
        self.found = self.look(run)


def look(
    find: Any,
    *overrides: str,
    source: object = "config.yaml",
    kind: type[ep.Experiment] = ep.Experiment,
    **sections: Any,
) -> Any:
    """The result of ``find`` for the run of a config, which trains a few batches."""
    hook = Look(find)
    choices = {"no_file": True, "fast": True, "device": "cpu"} | sections.pop("choices", {})
    result = kind(source, overrides=overrides, choices=choices, hooks=[hook], **sections).fit()
    assert result.ok, result.traceback
    return hook.found
