"""What the parts of a run look like once an experiment has put them together."""

from __future__ import annotations

from typing import Any

import epochal as ep


class Look(ep.Hook):
    """Keeps what a function finds in the assembled run."""

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
    """What ``find`` gives for the run of a config, of which a few batches are trained."""
    hook = Look(find)
    choices = {"no_file": True, "fast": True, "device": "cpu"} | sections.pop("choices", {})
    result = kind(source, overrides=overrides, choices=choices, hooks=[hook], **sections).fit()
    assert result.ok, result.traceback
    return hook.found
