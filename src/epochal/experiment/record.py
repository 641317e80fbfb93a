"""Opens the record of a run, writes what is known at its start, and closes it with the result."""

from __future__ import annotations

import shlex
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal.config import dump, load
from epochal.errors import RecordError
from epochal.experiment.builder import to_recordable
from epochal.experiment.text import on_disk, readable
from epochal.records import (
    NullWriter,
    RecordOptions,
    RunWriter,
    Status,
    Writer,
    collect_provenance,
    create_run_folder,
    describe_machine,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from epochal.check import Report
    from epochal.config import Config
    from epochal.engine import RunResult

_UNRECORDED = ("config", "value", "dir")


@final
@dataclass(frozen=True)
class Record:
    """Where one run leaves its traces; with ``--no-file`` that is nowhere."""

    writer: Writer
    dir: Path | None = None
    checkpoint_dir: Path | None = None
    log_path: Path | None = None

    facts: dict[str, Any] = field(default_factory=dict)
    """What ``run.json`` holds."""

    def write_start(self, info: dict[str, Any]) -> None:
        """Write what is known before anything is built."""
        if self.dir is not None:
            self.facts.update(_describe_start() | info)
            self.writer.write_run(self.facts)

    def add_meta(self, meta: dict[str, Any]) -> None:
        """Keep what the task knows about its data, such as the names of classes."""
        if self.dir is not None and meta:
            self.facts["meta"] = to_recordable(meta)
            self.writer.write_run(self.facts)

    def add_given(self, sections: Iterable[str]) -> None:
        """Keep which parts turned out to come from Python and not from the config."""
        known = self.facts.get("given", [])
        found = sorted({*known, *sections})
        if self.dir is not None and found != known:
            self.facts["given"] = found
            self.writer.write_run(self.facts)

    def write_end(self, result: RunResult) -> None:
        """Write how the run ended; the status last, since readers wait for it."""
        values = {
            one.name: getattr(result, one.name)
            for one in fields(result)
            if one.name not in _UNRECORDED
        }
        self.writer.write_result(values)
        status: Status = result.status  # type: ignore[assignment]  # a RunResult has no other
        self.writer.write_status(
            status,
            reason=result.reason,
            step=result.steps,
            epoch=result.epochs,
            times=result.times,
        )


@contextmanager
def open_record(config: Config, report: Report, *, is_kept: bool) -> Iterator[Record]:
    """A record with its configs written, read back and compared; closed in the end."""
    if not is_kept:
        yield Record(NullWriter())
        return
    values = report.expanded.to_plain()
    folder = create_run_folder(
        _record_options(values["record"]),
        project=on_disk(values["project"]),
        tag=on_disk(values["tag"]),
    )
    writer = RunWriter(folder)
    try:
        _write_configs(writer, config, report)
        yield Record(writer, folder.path, folder.checkpoint_dir, folder.log_path)
    finally:
        writer.close()


def _write_configs(writer: RunWriter, config: Config, report: Report) -> None:
    values = report.expanded.to_plain()
    writer.write_status("starting")
    try:
        writer.write_readme(values["tag"], values["desc"])
        text = dump(report.expanded, config.format)
        defaults = [(one.key, one.value, one.owner) for one in report.defaults]
        provenance = collect_provenance(report.expanded, defaults)
        writer.write_config(config.sources, text, config.format, provenance)
        _read_back(writer.folder.config_dir / f"expanded.{config.format}", values)
    except RecordError:
        with suppress(RecordError):  # the disk may refuse this too
            writer.write_status("failed", reason="record")
        raise


def _record_options(values: dict[str, Any]) -> RecordOptions:
    return RecordOptions(
        log_dir=Path(values["log_dir"]),
        exact=values["exact"],
        log_file=values["log_file"],
        subdirs=tuple(values["subdirs"]),
    )


def _read_back(path: Path, values: dict[str, Any]) -> None:
    """Make sure that the expanded config on disk is the one that is about to run."""
    found = load(path)
    if found.problems or found.root.to_plain() != values:
        raise RecordError(
            f"{path}: reads back as another config than the one that was written\n"
            "  this is a defect of Epochal; write the config as YAML to work around it"
        )


def _describe_start() -> dict[str, Any]:
    words = [Path(sys.argv[0]).name, *sys.argv[1:]] if sys.argv else []
    return {
        "command": readable(shlex.join(words)),
        "cwd": readable(str(Path.cwd())),
        "epochal": _own_version(),
        "machine": describe_machine(),
    }


def _own_version() -> str:
    try:
        return version("epochal")
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "not installed"
