"""The code of a run: kept by content, listed, and laid back."""

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
