"""Removes secrets from everything that a run writes to disk."""

from epochal.config.scalar import REDACTED
from epochal.records.secrets.process_secrets import hiding_secrets
from epochal.records.secrets.secret_names import is_secret_name
from epochal.records.secrets.text_redaction import redact
from epochal.records.secrets.tree_redaction import (
    is_secret_file,
    iter_config_secrets,
    iter_tree_secrets,
    redact_config,
    redact_tree,
)

__all__ = [
    "REDACTED",
    "hiding_secrets",
    "is_secret_file",
    "is_secret_name",
    "iter_config_secrets",
    "iter_tree_secrets",
    "redact",
    "redact_config",
    "redact_tree",
]
