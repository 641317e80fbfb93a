"""Copies the code of a project into its runs, and restores it."""

from epochal.records.code.code_manifest import (
    CodeFile,
    CodeManifest,
    Framework,
    SkippedEntry,
    read_code_digest,
    read_file,
    read_manifest,
)

__all__ = [
    "CodeFile",
    "CodeManifest",
    "Framework",
    "SkippedEntry",
    "read_code_digest",
    "read_file",
    "read_manifest",
]
