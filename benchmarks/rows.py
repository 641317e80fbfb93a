"""The rows of each table, and the targets of Epochal."""

from __future__ import annotations

from dataclasses import dataclass

CONTROL = "by hand"


@dataclass(frozen=True)
class Row:
    """One row of a table: its title and its adapter."""

    name: str
    peer: str
    package: str = ""
    opaque: bool = False
    """Whether both sides get a dataset that can only be indexed."""


PEERS = (
    Row(CONTROL, "hand_written"),
    Row("Epochal", "epochal", "epochal"),
    Row("Ignite", "ignite", "pytorch-ignite"),
    Row("Fabric", "fabric", "lightning"),
    Row("mmengine", "mmengine", "mmengine"),
    Row("Accelerate", "accelerate", "accelerate"),
    Row("Lightning", "lightning", "lightning"),
    Row("transformers", "transformers", "transformers"),
    Row("Composer", "composer", "mosaicml"),
)
OPAQUE = Row("Epochal (opaque dataset)", "epochal", "epochal", opaque=True)

ROWS = {
    "minimal": (*PEERS[:2], OPAQUE, *PEERS[2:]),
    "realistic": PEERS,
    "as-user": PEERS[:2],
}

TARGETS = {
    ("minimal", "tiny"): 1.03,
    ("minimal", "mlp"): 1.01,
    ("minimal", "gpt-mini"): 1.01,
    ("realistic", "tiny"): 1.05,
    ("realistic", "mlp"): 1.05,
    ("realistic", "gpt-mini"): 1.05,
    ("as-user", "tiny"): 0.6,
}
IMPORT_TARGET, FIRST_STEP_TARGET = 0.05, 0.5

TOLERANCES = {"minimal": 0.0, "realistic": 0.0, "as-user": 1e-3}
"""Allowed differences of losses and norms; a fused optimizer rounds in another order."""

PAIRS = {"minimal": 8, "realistic": 4, "as-user": 8}
"""Pairs of segments in one process."""

ABOUT = {
    "minimal": "No logging, no saving; the same DataLoader and AdamW for everyone.",
    "realistic": """
Bar, log every 50 steps, accuracy each step, evaluation and checkpoint each epoch, on a
pseudo-terminal; by hand the same.
""",
    "as-user": """
Data as `ep.data.Tensors`, AdamW from a config (fused where torch can); otherwise as minimal, and
against the same hand-written loop, which has a DataLoader and AdamW as torch gives them.
""",
}
NOTES = {
    "minimal": """
Opaque: both sides wrap the dataset in a class, so that the engine cannot see the tensors and gather
whole batches; the difference to the other row is the gain from gathering.
transformers takes the norm of the gradient at each step; no argument stops it.
""",
    "realistic": """
Epochal writes its own checkpoints, from which a run resumes bit for bit; a thread writes and syncs
them. Its record is on. mmengine has no bar, only log lines. Lightning and Composer
measure with torchmetrics, Ignite with its own metrics, the others with plain tensors. Composer
evaluates without a loss.
""",
    "as-user": "",
}
STUBBED = """
Composer was made for torch below 2.7.1 and runs with stand-ins for torchvision and mcli.
"""
