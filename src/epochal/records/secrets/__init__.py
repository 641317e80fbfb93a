"""Keeps secrets out of everything that a run leaves on disk."""

from epochal.config.scalar import REDACTED
from epochal.records.secrets.files import is_secret_file, redact_bytes
from epochal.records.secrets.known import hiding
from epochal.records.secrets.names import is_secret_name
from epochal.records.secrets.text import redact
from epochal.records.secrets.tree import redact_node, redact_tree, secret_texts, secret_values

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
