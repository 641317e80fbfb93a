"""Opens the record of a run, writes what is known at its start, and closes it with the result."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.checkpoint.checkpoint_folder import read_checkpoint
from epochal.config import Duration, dump, load
from epochal.config.scalar import REDACTED
from epochal.engine.feed.feed import read_task_attribute
from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.run import ResumePoint
from epochal.engine.interfaces.splits import SPLITS
from epochal.engine.run.engine_run import ignore_stall
from epochal.errors import DIVERGED, EpochalError, Preempted, RecordError
from epochal.experiment.config.choices import to_override
from epochal.experiment.record.code_copy import CodeCopy, discard_code, find_parent
from epochal.experiment.resume.changes import (
    ChangedError,
    digest_code,
    digest_config,
    find_config_changes,
    find_data_changes,
    fingerprint_data,
    refuse_changes,
)
from epochal.experiment.resume.resume_plan import load_resume_point, read_spent_before
from epochal.records import (
    NullWriter,
    RecordOptions,
    RunFolder,
    RunWriter,
    Writer,
    collect_provenance,
    create_run_folder,
    describe_machine,
)
from epochal.records.folder.folder import report_run_folder
from epochal.records.folder.machine import own_version
from epochal.records.folder.record_digests import digest_config_files
from epochal.records.layout.attempts import begin_attempt
from epochal.records.layout.lease import (
    LEASE_FILE,
    holding_lease,
    release_reserve,
    reserving_disk_space,
    writing_heartbeat,
)
from epochal.records.layout.os_errors import raising_record_errors
from epochal.records.layout.run_status import ACTIVE_STATUSES
from epochal.records.layout.stop_request import clear_stop_request
from epochal.records.metrics.time_spent import TimeSpent, parse_time_spent
from epochal.records.secrets import hiding_secrets, iter_config_secrets, redact_config
from epochal.text.command import command_line_words
from epochal.text.escape import decode_typed, to_file_name, to_openable_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from epochal.check import CheckReport
    from epochal.config import Config, Node
    from epochal.distributed.world import World
    from epochal.engine import RunResult
    from epochal.experiment.resume.resume_plan import ResumePlan
    from epochal.launch.jobs.frozen_job import FrozenCode
    from epochal.records import RunRecord
    from epochal.records.layout.lease import Lease
    from epochal.records.layout.run_status import Status
    from epochal.registry.project import Project

logger = logging.getLogger(__name__)

_UNRECORDED = ("config", "value", "dir")
_MAX_SHOWN = 200


@final
@dataclass(frozen=True)
class OpenRecord:
    """The record that a run writes; with ``--no-file`` it writes nothing."""

    writer: Writer
    dir: Path | None = None
    checkpoint_dir: Path | None = None
    log_path: Path | None = None

    facts: dict[str, Any] = field(default_factory=dict)
    """The content of ``run.json``."""

    resume_plan: ResumePlan | None = None
    resume_point: ResumePoint | None = None
    """The checkpoint that the run resumes from; None for a new run."""

    notes: tuple[str, ...] = ()
    """Warnings that are logged at the start."""

    on_stall: Callable[[str, int], None] = ignore_stall
    """Called when the run makes no progress."""

    is_supervised: bool = False
    """Whether a supervisor starts the run again when its process ends."""

    code: CodeCopy | None = None
    frozen: FrozenCode | None = None
    """The code of a frozen job, which replaces that of the project."""

    spent: TimeSpent = field(default_factory=TimeSpent)
    """The time that earlier attempts took."""

    lease: Lease | None = None

    def is_owner(self) -> bool:
        """Whether this process may still write; False once it noticed that it lost the lease."""
        return self.lease is None or not self.lease.loss

    def write_start(self, info: dict[str, Any]) -> None:
        """Write what is known before anything is built; for a resumed run, add the attempt."""
        if self.dir is None:
            return
        start = _describe_start(None if self.code is None else self.code.project, self.frozen)
        self._save_code(start)
        if self.resume_plan is None:
            parent = find_parent(self.dir, info)
            info |= {"parent": None if parent is None else parent.to_json()}
            self.facts.update(start | info | {"attempts": [begin_attempt(0).to_json()]})
            self.facts.update(digest_config_files(self.dir))
        else:
            names = ("command", "cwd", "epochal", "torch", "device")
            known = start | info
            self.facts["attempts"][-1] |= {name: known[name] for name in names}
            for name, value in known.items():  # the process may have died before it wrote them
                self.facts.setdefault(name, value)
            self.facts.update(digest_config_files(self.dir))  # unchanged, or allowed to differ
        self.writer.write_run(self.facts)
        for note in self.notes:
            logger.warning("%s", note)

    def _save_code(self, start: dict[str, Any]) -> None:
        if self.code is None or not self.code.is_wanted:
            return
        git = start["machine"]["git"] or {}
        self.code.save(version=start["epochal"], is_dirty=bool(git.get("dirty")))
        start["code"] = self.code.digest

    def add_origins(self, project: Project, config: Node, task: object) -> dict[str, Any]:
        """Record the imported code and the data; returns the facts that checkpoints store.

        Refuses a resumed run whose data has changed.
        """
        if self.dir is None:
            return {}
        attempt = self.facts["attempts"][-1]
        code = digest_code(project)
        data = {"train": fingerprint_data(read_task_attribute(task, "train_loader"))}
        if self.resume_plan is not None:
            point = self.resume_point
            known = self.facts.get("data", {}) if point is None else point.manifest.data
            changes = find_data_changes(known.get("train", {}), data["train"])
            if not self.resume_plan.allows_changes:
                refuse_changes(self.dir, changes)
            attempt["changed"] = [*attempt.get("changed", ()), *map(str, changes)]
        attempt["code"] = code
        if self.code is not None and self.code.is_wanted:
            self.code.add(code)
            if self.resume_plan is None:
                self.facts["code"] = self.code.digest
        self.facts["data"] = data
        self.facts["splits"] = [
            split for split in SPLITS if read_task_attribute(task, f"{split}_loader") is not None
        ]
        self.writer.write_run(self.facts)
        return {
            "run": self.dir.name,
            "attempt": attempt["attempt"],
            "config": digest_config(config.to_public()),
            "code": digest_config(code),
            "data": data,
            "changed": attempt.get("changed", ()),
        }

    def add_task_values(self, values: dict[str, Any]) -> None:
        """Record the values that the config takes from the task, by key.

        Refuses a resumed run if they have changed.
        """
        if self.dir is None:
            return
        plan, before = self.resume_plan, self.facts.get("task_values")
        if plan is not None and isinstance(before, dict):
            changes = find_config_changes(before, values)
            if not plan.allows_changes:
                refuse_changes(self.dir, changes)
            attempt = self.facts["attempts"][-1]
            attempt["changed"] = [*attempt.get("changed", ()), *map(str, changes)]
        if values:
            self.facts["task_values"] = values
            self.writer.write_run(self.facts)

    def add_meta(self, meta: dict[str, Any]) -> None:
        """Record what the task says about its data, such as the names of classes."""
        if self.dir is not None and meta:
            self.facts["meta"] = to_recordable(meta)
            self.writer.write_run(self.facts)

    def add_given(self, sections: Iterable[str]) -> None:
        """Record which parts came from Python and not from the config."""
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
        self.writer.require_lease()
        if self.dir is not None:
            release_reserve(self.dir)
        self.writer.write_result(values)
        status: Status = result.status  # type: ignore[assignment]  # a RunResult has no other
        spent = parse_time_spent(vars(result))
        self.writer.write_status(
            status,
            reason=result.reason,
            step=result.steps,
            epoch=result.epochs,
            **spent.to_fields(),
        )


@contextmanager
def open_record(
    config: Config,
    report: CheckReport,
    *,
    is_kept: bool,
    resume_plan: ResumePlan | None = None,
    frozen: FrozenCode | None = None,
    world: World | None = None,
) -> Iterator[OpenRecord]:
    """A record with its configs written and verified; closed at the end.

    With ``resume_plan`` it is that of an earlier run, whose configs and README stay unchanged.
    ``frozen`` is the code of a frozen job. Of several processes only the main one has a record;
    it tells the others where to log and what to resume from.
    """
    secrets = [*iter_config_secrets(config.root), *iter_config_secrets(report.expanded)]
    kept = _open_on_disk(config, report, resume_plan, frozen)
    with (
        hiding_secrets(secrets),
        kept if is_kept else nullcontext(OpenRecord(NullWriter())) as record,
    ):
        if world is not None:
            world.broadcast(_tell_ranks(record))
        yield record


def follow_record(world: World) -> OpenRecord:
    """The record as another process than the main one sees it; only the main process writes."""
    told = world.broadcast(_RecordForRanks())
    log_path, point = told.log_path, None
    if told.checkpoint is not None:
        state, manifest = read_checkpoint(told.checkpoint, keeps_shards=True, is_verified=True)
        point = ResumePoint(
            state=state,
            manifest=manifest,
            path=told.checkpoint,
            is_strict=told.is_strict,
            has_ended=told.has_ended,
        )
    if log_path is not None:
        log_path = RunFolder(log_path.parents[1], log_path.name).log_path_of(world.rank)
        log_path.parent.mkdir(parents=True, exist_ok=True)
    return OpenRecord(
        NullWriter(),
        checkpoint_dir=told.checkpoint_dir,
        log_path=log_path,
        resume_point=point,
        spent=told.spent,
    )


@final
@dataclass(frozen=True)
class _RecordForRanks:
    """What the main process sends to the others about its record."""

    checkpoint_dir: Path | None = None
    log_path: Path | None = None
    checkpoint: Path | None = None
    """The one to resume from."""

    is_strict: bool = True
    has_ended: bool = False
    spent: TimeSpent = field(default_factory=TimeSpent)


def _tell_ranks(record: OpenRecord) -> _RecordForRanks:
    point = record.resume_point
    told = _RecordForRanks(record.checkpoint_dir, record.log_path, spent=record.spent)
    if point is None:
        return told
    return replace(
        told, checkpoint=point.path, is_strict=point.is_strict, has_ended=point.has_ended
    )


@contextmanager
def _open_on_disk(
    config: Config, report: CheckReport, plan: ResumePlan | None, frozen: FrozenCode | None
) -> Iterator[OpenRecord]:
    if plan is not None:
        path = plan.record.path
        is_supervised = report_run_folder(path)
        with (
            holding_lease(path) as lease,
            writing_heartbeat(path, is_owner=lease.watch),
            _reopened(plan, report, lease, is_supervised=is_supervised, frozen=frozen) as record,
        ):
            yield record
        return
    values = report.expanded.to_plain()
    options = _record_options(values["record"])
    folder = create_run_folder(
        options,
        project=to_file_name(values["project"]),
        tag=to_file_name(values["tag"]),
        is_private=report.project.has_private_runs,
    )
    report_run_folder(folder.path)
    with (
        _removing_failed_start(folder.path),
        holding_lease(folder.path) as lease,
        writing_heartbeat(folder.path, is_owner=lease.watch),
        _closing(RunWriter(folder, lease=lease)) as writer,
        reserving_disk_space(folder.path, lease),
    ):
        _write_configs(writer, config, report)
        code = CodeCopy(
            options, project=report.project.dir, run_dir=folder.path, frozen=_snapshot(frozen)
        )
        yield OpenRecord(
            writer,
            folder.path,
            folder.checkpoint_dir,
            folder.log_path,
            notes=tuple(describe_withheld_secrets(report.expanded)),
            code=code,
            frozen=frozen,
            lease=lease,
        )


def _snapshot(frozen: FrozenCode | None) -> Path | None:
    return None if frozen is None else frozen.snapshot


@contextmanager
def _restoring_on_refusal(folder: Path, attempt: int) -> Iterator[None]:
    """Restore the status of a run if a block refuses to resume it."""
    paths = [folder / name for name in ("run.json", "status.json")]
    before = {path: durable.read_bytes(path) for path in paths if path.is_file()}
    try:
        yield
    except ChangedError:
        with raising_record_errors():
            for path, data in before.items():
                durable.write_bytes(path, data)
        discard_code(folder, attempt)
        raise


@contextmanager
def _closing(writer: RunWriter) -> Iterator[RunWriter]:
    """Close the files at the end; record why a run could not start."""
    with closing(writer):
        try:
            yield writer
        except KeyboardInterrupt as end:
            if _status_of(writer.path) in ("", *ACTIVE_STATUSES):
                if isinstance(end, Preempted):
                    writer.write_status("preempted", reason="preempted")
                else:
                    writer.write_status("interrupted", reason="user_interrupt")
            raise
        except RecordError:
            with suppress(RecordError):  # the disk may refuse this too
                if _status_of(writer.path) in ("", "starting"):
                    writer.write_status("failed", reason="record")
            raise


@contextmanager
def _removing_failed_start(folder: Path) -> Iterator[None]:
    """Remove the folder of a run that could not write its first files.

    A folder that another process has taken stays.
    """
    try:
        yield
    except RecordError:
        is_begun = any((folder / name).exists() for name in ("run.json", LEASE_FILE))
        if _status_of(folder) in ("", "starting") and not is_begun:
            with suppress(OSError):
                durable.remove_tree(folder, "undone")
        raise


def _status_of(folder: Path) -> object:
    return durable.find_object(folder / "status.json").get("status", "")


@contextmanager
def _reopened(
    plan: ResumePlan,
    report: CheckReport,
    lease: Lease,
    *,
    is_supervised: bool,
    frozen: FrozenCode | None,
) -> Iterator[OpenRecord]:
    """The record of a resumed run; restored if the run is refused."""
    point, notes = load_resume_point(plan) if plan.has_state else (None, [])
    clear_stop_request(plan.record.path)
    if plan.record.summary.status == DIVERGED:
        start = 0 if point is None else point.manifest.step
        back = f", and resumes at step {start}" * (plan.starts_again or plan.has_state)
        change = "it will diverge again unless something changes, such as optim.lr"
        notes = [*notes, f"it diverged{back}; {change}"]
    elif plan.starts_again:
        notes = ["it died before its first checkpoint, and starts again at step 0"]
    attempt = plan.begin(point, is_supervised=is_supervised)
    options = _record_options(report.expanded.to_plain()["record"])
    folder = RunFolder(plan.record.path, options.log_file)
    run = plan.record.run
    listed = run.get("attempts")
    before = listed if isinstance(listed, list) else []
    facts = {**run, "attempts": [*before, attempt.to_json()]}
    number = attempt.attempt
    with (
        _restoring_on_refusal(folder.path, number),
        _closing(RunWriter(folder, attempt=number, lease=lease)) as writer,
        reserving_disk_space(folder.path, lease),
    ):
        at = {"step": 0, "epoch": 0} if plan.starts_again else {}
        if point is not None:
            at = {"step": point.manifest.step, "epoch": point.manifest.epoch}
        spent = read_spent_before(plan.record, point)
        writer.write_status("starting", **at, **spent.to_fields())
        folder.log_path.parent.mkdir(parents=True, exist_ok=True)
        yield OpenRecord(
            writer,
            folder.path,
            folder.checkpoint_dir,
            folder.log_path,
            facts=facts,
            resume_plan=plan,
            resume_point=point,
            notes=tuple(notes),
            spent=spent,
            code=CodeCopy(
                options,
                project=report.project.dir,
                run_dir=folder.path,
                attempt=number,
                frozen=_snapshot(frozen),
            ),
            frozen=frozen,
            lease=lease,
        )


def _write_configs(writer: RunWriter, config: Config, report: CheckReport) -> None:
    values = report.expanded.to_plain()
    writer.write_status("starting")
    writer.write_readme(values["tag"], values["desc"])
    expanded = redact_config(report.expanded)
    text = dump(expanded, config.format)
    defaults = [(one.key, one.value, one.owner) for one in report.defaults]
    provenance = collect_provenance(report.expanded, defaults)
    writer.write_config(config.sources, text, config.format, provenance)
    path = writer.folder.config_dir / f"expanded.{config.format}"
    if not _is_readable_as(path, expanded):  # a part of the text was taken for a secret
        with raising_record_errors():
            durable.write_text(path, text)
        if not _is_readable_as(path, expanded):
            raise RecordError(
                f"{path}: reads back as another config than the one that was written\n"
                "  this is a bug in Epochal; write the config as YAML to work around it"
            )


def _record_options(values: dict[str, Any]) -> RecordOptions:
    paths = {"log_dir": Path(values["log_dir"]).expanduser()}
    tuples = {name: tuple(values[name]) for name in ("subdirs", "ignore")}
    return RecordOptions(**values | paths | tuples)


def _is_readable_as(path: Path, expanded: Node) -> bool:
    found = load(path)
    return not found.problems and found.root.to_public() == expanded.to_public()


def _describe_start(project: Path | None, frozen: FrozenCode | None) -> dict[str, Any]:
    start: dict[str, Any] = {
        "command": decode_typed(shlex.join(command_line_words())),
        "cwd": decode_typed(str(Path.cwd())),
        "epochal": own_version(),
        "machine": describe_machine(project),
    }
    if frozen is not None:
        start |= {"command": frozen.command, "machine": start["machine"] | {"git": frozen.git}}
    return start


def to_recordable(value: object) -> object:
    """A value as the record can keep it: plain data as it is, other objects by their type."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_recordable(child) for key, child in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_recordable(child) for child in value]
    if isinstance(value, Path | Every | Duration):
        return str(value)
    text = f"<{type(value).__module__}.{type(value).__qualname__}>"
    return text[:_MAX_SHOWN]


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

    ``config`` is the expanded config in the record, ``overrides`` are changes to it.
    """
    kept = load(config, overrides=overrides).root
    missing = [key for key, node in kept.iter_leaves() if _is_withheld(node)]
    if not missing:
        return []
    try:
        original = _load_original(record.run)
    except (EpochalError, OSError):  # the check reports what is missing
        return []
    return list(_restore_secrets(original, kept, missing)) if original is not None else []


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


def _restore_secrets(original: Config, kept: Node, missing: Sequence[str]) -> Iterator[str]:
    clean = redact_config(original.root)
    for key in missing:
        found, shown, recorded = original.root.find(key), clean.find(key), kept.find(key)
        if found is None or shown is None or recorded is None or _is_withheld(found):
            continue
        if shown.value == recorded.value:  # the same apart from the secret
            yield to_override(key, found.to_public())
