"""Keeps secrets out of everything that a run leaves on disk."""

from epochal.config.scalar import REDACTED
from epochal.records.secrets.process_secrets import hiding
from epochal.records.secrets.secret_names import is_secret_name
from epochal.records.secrets.text_redaction import redact
from epochal.records.secrets.tree_redaction import (
    is_secret_file,
    redact_bytes,
    redact_node,
    redact_tree,
    secret_texts,
    secret_values,
)

__all__ = [
    "REDACTED",
    "hiding",
    "is_secret_file",
    "is_secret_name",
    "redact",
    "redact_bytes",
    "redact_node",
    "redact_tree",
    "secret_texts",
    "secret_values",
]
