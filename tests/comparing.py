"""Made-up run folders, for tests that compare runs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from epochal import durable
from epochal.records.code.code_manifest import CodeFile, CodeManifest, Framework, SkippedEntry
from epochal.records.find import read_run
from epochal.records.metrics.points import MetricWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from epochal.records.folder.reader import RunRecord

FACTS = {"project": "digits", "runner": "train", "epochal": "1", "torch": "2", "monitor": "val/acc"}


def origin(value: object, where: str = "", *, layer: str = "file") -> list[dict[str, object]]:
    """Where a value was set: ``a.yaml:3``, or the class whose default it is."""
    source, _, line = where.partition(":")
    place = {"source": source or "a.yaml", "line": int(line or 1), "column": 1}
    return [{"value": value, **place, "layer": layer}]


def default(value: object, owner: str = "section 'optim'") -> list[dict[str, object]]:
    return origin(value, owner, layer="default")


def command_line(value: object) -> list[dict[str, object]]:
    return origin(value, "command line", layer="command line")


def make_run(
    path: Path,
    config: Mapping[str, object] | None = None,
    *,
    points: Mapping[str, Mapping[int, float]] | None = None,
    status: str = "finished",
    metrics: Mapping[str, float] | None = None,
    best: float | None = None,
    **facts: Any,
) -> RunRecord:
    """Write the record of a made-up run.

    Args:
        path: Its folder.
        config: Values by dotted key, or where they were set, as ``origin`` gives it.
        points: Values by step, for each metric.
        status: How it ended.
        metrics: Metrics of its result.
        best: Best value of its monitor.
        facts: Further entries of ``run.json``.
    """
    monitor = {} if "monitor.metric" in (config or {}) else {"monitor": "+val/acc"}
    config = {"seed": 0, "tag": "t", **monitor, **(config or {})}
    provenance = {
        key: value if isinstance(value, list) and value else origin(value)
        for key, value in config.items()
    }
    (path / "config").mkdir(parents=True)
    nested: dict[str, Any] = {}
    for key, origins in provenance.items():
        _plant(nested, key.split("."), origins[0]["value"])
    steps = sorted({step for values in (points or {}).values() for step in values})
    seed = provenance["seed"][0]["value"]
    result = {"status": status, "metrics": metrics or {}, "best": best, "seconds": 2.0}
    files = {
        "config/provenance": provenance,
        "config/expanded": _lists(nested),
        "run": FACTS | {"seed": seed, "tag": "t"} | facts,
        "result": {"attempt": 0, **result},
        "status": {"status": status, "step": max(steps, default=0), "epoch": 1, "attempt": 0},
    }
    for name, values in files.items():
        (path / f"{name}.json").write_bytes(durable.encode_json(values))
    writer = MetricWriter(path)
    for step in steps:
        known = {name: values[step] for name, values in (points or {}).items() if step in values}
        writer.log(known, step)
    writer.close()
    return read_run(path)


def keep_code(
    record: RunRecord,
    files: Mapping[str, bytes],
    *,
    links: Mapping[str, str] | None = None,
    epochal: str = "",
) -> None:
    """Add a copy of some code files to a run; ``epochal`` is the digest of Epochal itself."""
    entries = []
    for path, content in sorted(files.items()):
        target = record.path / "code" / "project" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        entries.append(CodeFile(path, hashlib.sha256(content).hexdigest(), len(content), 0o644))
    manifest = CodeManifest(
        project="/p",
        files=tuple(entries),
        others=tuple(SkippedEntry(path, "link", text) for path, text in (links or {}).items()),
        framework=Framework("1.0", epochal, "epochal.zip") if epochal else None,
    )
    (record.path / "code").mkdir(exist_ok=True)
    (record.path / "code" / "manifest.json").write_bytes(manifest.to_json())


def _plant(tree: dict[str, Any], words: Sequence[str], value: object) -> None:
    for word in words[:-1]:
        tree = tree.setdefault(word, {})
    tree[words[-1]] = value


def _lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdecimal() for key in value):
        return [_lists(child) for child in value.values()]
    return {key: _lists(child) for key, child in value.items()}
