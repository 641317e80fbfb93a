"""Adds hints to errors of torch that the first batch of new code often raises."""

from __future__ import annotations

import re

_HINTS = (
    (
        r"^expected target dtype to be Long\b.* got (\w+)",
        "the labels are {0}, but class numbers are int64: use labels.long(), best in the dataset",
    ),
    (
        r"^Target (-?\d+) is out of bounds",
        "a label is {0}: it must be at least 0 and less than the number of scores; "
        "labels that do not count are ignore_index",
    ),
    (
        "^0D or 1D target tensor expected, multi-target not supported",
        "class numbers have the shape (batch,): use labels.squeeze(1); for scores of shape "
        "(batch, length, classes), use scores.flatten(0, 1) and labels.flatten()",
    ),
    (
        "^index out of range in self",
        "an embedding got a number that is negative or not less than its num_embeddings",
    ),
    (
        "^Trying to backward through the graph a second time",
        "the run calls backward itself, once a step: return the loss without loss.backward(), "
        "and detach() what is kept for the next batch",
    ),
)
"""What torch says, and what to do; groups of the pattern are inserted."""


def explain_torch_error(error: BaseException) -> None:
    """Add a note to an error of torch whose usual cause is known."""
    if not isinstance(error, RuntimeError | IndexError):
        return
    for pattern, hint in _HINTS:
        found = re.search(pattern, str(error))
        if found is not None:
            error.add_note(hint.format(*(name.lower() for name in found.groups())))
            return
