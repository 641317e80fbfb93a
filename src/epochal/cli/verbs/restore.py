"""``epochal restore``: writes the code and the config of a run into a new folder."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal.cli.arguments import add_json_option, add_run_argument, print_json
from epochal.errors import RecordError
from epochal.experiment.config.choices import add_options
from epochal.records import RunRecord, read_run
from epochal.records.code.restore import FRAMEWORK_DIR, RestoreResult, restore_code
from epochal.records.folder.experiment_facts import find_unnamed_class
from epochal.records.folder.machine import package_versions
from epochal.registry.project import find_project
from epochal.text.command import absolute_command
from epochal.text.escape import escape_control, to_openable_path
from epochal.text.formatting import format_count
from epochal.text.terminal import print_wrapped

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from epochal.records.code import SkippedEntry

_SHOWN = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    add_run_argument(parser)
    parser.add_argument("dir", type=Path, metavar="DIR", help="a new or empty folder")
    text = "attempt of the run, if it was resumed with other code (default: the first)"
    partial = "skip files that are damaged or missing, instead of restoring nothing"
    add_options(parser, {"--attempt N": text, "--partial": partial}, attempt=0)
    add_json_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Restore the files, and print the next commands."""
    record = read_run(args.run, args.runs_dir)
    done = restore_code(record.path, args.dir, attempt=args.attempt, is_partial=args.partial)
    typed = _command(record, done)
    if args.json:
        print_json(_to_json(record, done, typed))
    else:
        print_wrapped(_describe(record, done))
        if typed:
            print(escape_control("\n".join(["", "next", "", *(f"  {line}" for line in typed)])))
    return RecordError.exit_code if done.lost else 0


def _to_json(record: RunRecord, done: RestoreResult, typed: list[str]) -> dict[str, Any]:
    return {
        "run": record.summary.id,
        "dir": done.dir,
        "files": len(done.manifest.files) - len(done.lost),
        "config": done.config,
        "lost": done.lost,
        "altered": done.altered,
        "not_kept": [{"path": one.path, "kind": one.kind, "text": one.text} for one in done.others],
        "ignored": done.ignored,
        "epochal": done.framework_dir,
        "packages": {name: list(pair) for name, pair in _other_packages(record).items()},
        "is_complete": _is_complete(record, done),
        "command": typed,
    }


def _describe(record: RunRecord, done: RestoreResult) -> Iterator[str]:
    count = format_count(len(done.manifest.files) - len(done.lost), "file")
    yield f"restored {count} of {record.summary.tag} ({record.summary.id}) to {done.dir}"
    yield from _listed("missing", done.lost)
    yield from _listed(
        "not saved", [_describe_skipped(one) for one in done.others], done.manifest.left_out
    )
    yield from _listed("ignored", done.ignored)
    yield from _listed("changed", [f"{path} ({why})" for path, why in done.altered.items()])
    packages = _other_packages(record)
    yield from _listed(
        "other package versions here",
        [f"{name} {then or 'none'} -> {now or 'none'}" for name, (then, now) in packages.items()],
    )
    if done.framework_dir is not None:
        yield f"  epochal: another version than here; it is in {done.framework_dir}"
    yield from _warnings(record)
    if _is_complete(record, done):
        yield (
            "  all files are unchanged: on the same machine the run repeats bit for bit, unless"
            " it reads hidden files or data elsewhere"
        )


def _is_complete(record: RunRecord, done: RestoreResult) -> bool:
    """Whether all files of the record were restored as the run used them."""
    is_here = done.config is not None and not (done.lost or done.altered)
    is_all = not (done.others or done.ignored or done.manifest.left_out)
    return is_here and is_all and not (_other_packages(record) or any(_warnings(record)))


def _warnings(record: RunRecord) -> Iterator[str]:
    given = record.run.get("given")
    if isinstance(given, list) and given:
        parts = ", ".join(map(str, given))
        yield f"  {parts} were passed in Python; start its script: {record.run.get('command')}"
    elif (own := find_unnamed_class(record.run)) is not None:
        yield f"  {own}, builds its parts; start its script: {record.run.get('command')}"
    if record.expanded.get("init_from") is not None:
        yield f"  its initial weights are not restored: init_from: {record.expanded['init_from']}"
    if any(one.overrides for one in record.attempts):
        yield "  it was resumed with another config; this is the config it started with"
    elif any(one.changed for one in record.attempts):
        yield "  it was resumed with other code; --attempt N restores that code"


def _listed(title: str, names: list[str] | tuple[str, ...], num_unlisted: int = 0) -> Iterator[str]:
    if names:
        rest = len(names[_SHOWN:]) + num_unlisted
        yield f"  {title}: {', '.join(names[:_SHOWN])}" + (f" and {rest} more" if rest else "")


def _describe_skipped(one: SkippedEntry) -> str:
    if one.kind == "link":
        return f"{one.path} -> {one.text}"
    if one.kind == "secret":
        return f"{one.path} ({one.text or 'secret'})"
    return f"{one.path} ({one.kind}, {one.text})" if one.text else f"{one.path} ({one.kind})"


def _other_packages(record: RunRecord) -> dict[str, tuple[str, str]]:
    """Packages with another version than in the run: the version then and now."""
    machine = record.run.get("machine")
    then = machine.get("packages") if isinstance(machine, dict) else None
    if not isinstance(then, dict):
        return {}
    now = package_versions()
    return {
        name: (str(version), now.get(name, ""))
        for name, version in then.items()
        if now.get(name) != version and name != "epochal"
    }


def _command(record: RunRecord, done: RestoreResult) -> list[str]:
    """The commands that start the run again."""
    if done.config is None:
        return []
    inner = _inner_dir(record)
    folder = done.dir / inner
    config = os.path.relpath(done.config, folder)
    words = ["run", config, *_options(record, done, inner)]
    program = absolute_command()
    if done.framework_dir is not None:
        program = (
            f"PYTHONPATH={os.path.relpath(done.dir / FRAMEWORK_DIR, folder)} python -m epochal"
        )
    return [f"cd {shlex.quote(str(folder))}", f"{program} {shlex.join(words)}"]


def _inner_dir(record: RunRecord) -> Path:
    """The folder inside the project where the run was started; empty if it was elsewhere."""
    project, cwd = record.run.get("project_dir"), record.run.get("cwd")
    if isinstance(project, str) and isinstance(cwd, str):
        path = Path(to_openable_path(cwd))
        if path.is_relative_to(to_openable_path(project)):
            return path.relative_to(to_openable_path(project))
    return Path()


def _options(record: RunRecord, done: RestoreResult, inner: Path) -> Iterator[str]:
    if record.expanded.get("record", {}).get("exact"):  # the run itself occupies that folder
        yield from ("record.exact=false", "record.log_dir=runs")
    assert done.config is not None
    if find_project(done.config).dir != done.dir.absolute():  # the folder is inside another project
        yield from ("--user-dir", os.path.relpath(done.dir, done.dir / inner))
    typed, device = str(record.run.get("command")), record.run.get("device")
    if ("--device" in typed or "--gpus" in typed) and isinstance(device, dict):
        yield from ("--device", str(device.get("device")))
