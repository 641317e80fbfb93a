"""The code of a run: kept by content, listed, and laid back."""

from epochal.records.code.code_manifest import (
    File,
    Framework,
    Manifest,
    Other,
    digest_of,
    read_file,
    read_manifest,
)

__all__ = ["File", "Framework", "Manifest", "Other", "digest_of", "read_file", "read_manifest"]
