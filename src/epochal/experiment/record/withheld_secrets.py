"""Secrets of a config that its record omits: named at the start, read again on resume."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal.config import load
from epochal.config.scalar import REDACTED
from epochal.errors import EpochalError
from epochal.experiment.config.choices import to_override
from epochal.records.secrets import redact_config
from epochal.text.escape import to_openable_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from epochal.config import Config, Node
    from epochal.records import RunRecord


def describe_withheld_secrets(expanded: Node) -> list[str]:
    """One line that names the secrets written in a config, if there are any."""
    kept = {key: node.to_public() for key, node in redact_config(expanded).iter_leaves()}
    keys = [
        key
        for key, node in expanded.iter_leaves()
        if key not in kept or node.to_public() != kept[key]  # a key may contain a secret, too
    ]
    if not keys:
        return []
    return [
        f"the record omits secrets, here {', '.join(keys)}; resuming the run needs them in its "
        "config file, as key=VALUE, or better as ${env:NAME}"
    ]


def find_withheld_secrets(record: RunRecord, config: Path, overrides: Sequence[str]) -> list[str]:
    """Overrides with the secrets that a record omits, if the run's config file still has them.

    Args:
        record: The run to resume.
        config: The expanded config in its record.
        overrides: Changes to it.
    """
    kept = load(config, overrides=overrides).root
    missing = [key for key, node in kept.iter_leaves() if _is_withheld(node)]
    if not missing:
        return []
    try:
        original = _load_original(record.run)
    except (EpochalError, OSError):  # the check reports what is missing
        return []
    return list(_read_again(original, kept, missing)) if original is not None else []


def _is_withheld(node: Node) -> bool:
    return isinstance(node.value, str) and REDACTED in node.value


def _load_original(run: dict[str, Any] | Any) -> Config | None:  # noqa: ANN401 - may be damaged
    path, typed = run.get("config_path"), run.get("overrides")
    if not isinstance(path, str):
        return None
    here = run.get("cwd")
    path = Path(to_openable_path(here if isinstance(here, str) else "")) / to_openable_path(path)
    words = [str(one) for one in typed if REDACTED not in str(one)] if typed else []
    return load(path, variant=run.get("variant"), overrides=words)


def _read_again(original: Config, kept: Node, missing: Sequence[str]) -> Iterator[str]:
    clean = redact_config(original.root)
    for key in missing:
        found, shown, recorded = original.root.find(key), clean.find(key), kept.find(key)
        if found is None or shown is None or recorded is None or _is_withheld(found):
            continue
        if shown.value == recorded.value:  # the same apart from the secret
            yield to_override(key, found.to_public())
