"""``epochal run --keep-alive``: restarts a run whenever its process dies."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from epochal.errors import ConfigError, Problem
from epochal.experiment.config.choices import add_options, read_choices, to_overrides
from epochal.launch.restart_policy import DEFAULT_RESTARTS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from epochal.launch.supervisor import MailSettings

_FLAGS = ("--keep-alive", "--install", "--dry-run", "--again")
_WITH_VALUE = ("--restarts", "--from")
_AGAIN = "--again"


def add_keep_alive_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``--keep-alive``."""
    group = parser.add_argument_group("keeping a run alive")
    texts = {
        "--keep-alive": "restart the run from its newest checkpoint when it crashes or is killed",
        "--restarts N": "give up after N starts in a row without progress "
        f"(default: {DEFAULT_RESTARTS})",
        "--install": "also restart the run after the machine reboots",
        "--dry-run": "only print what --install would write, or what would start on --devices or "
        "with --nproc",
    }
    add_options(group, texts, restarts=DEFAULT_RESTARTS)
    group.add_argument(_AGAIN, action="store_true", help=argparse.SUPPRESS)  # in installed jobs


def keep_alive(args: argparse.Namespace, files: Sequence[Path]) -> int:
    """Restart one run until it finishes or makes no progress; returns the exit code."""
    # An ordinary run needs none of these imports.
    from epochal.launch.keep_alive_file import find_keep_alive_file
    from epochal.launch.supervisor import SupervisedCommands, supervise
    from epochal.records.secrets import redact

    _refuse_unsupported(args, files)
    words = _own_words(args.typed)
    program = [sys.executable, "-m", "epochal"]
    start = [*program, *words]
    file = find_keep_alive_file(files[0].stem, start)
    if args.install:
        _install(args, f"epochal-{file.path.stem}", [*program, *_installed_words(args.typed)])
        if args.dry_run:
            return 0
        file.create(start)
    if args.again and not file.exists:
        _print_notice("nothing left to do")
        return 0
    if (folder := file.read_run()) is not None:
        _print_notice(f"continuing {folder}")

    def resume(folder: Path) -> list[str]:
        point = ["--from", args.resume_from] if args.resume_from else []
        # The record has all overrides except secrets.
        secrets = [word for word in args.words if "=" in word and redact(word) != word]
        options = ["--trust", *point, *_options_of_process(args)]  # the user started this code
        return [*program, "resume", str(folder), *secrets, *options]

    commands = SupervisedCommands(
        start=start,
        resume=resume,
        find_mail_settings=lambda: _find_mail_settings(args, files[0]),
    )
    return supervise(commands, file, limit=args.restarts, tell=_print_notice)


def _find_mail_settings(args: argparse.Namespace, file: Path) -> MailSettings | None:
    """The folder of runs and the recipients of mail, as the config names them."""
    from pathlib import Path

    from epochal.check import check
    from epochal.cli.arguments import split_files_and_overrides
    from epochal.config import load
    from epochal.launch.supervisor import MailSettings
    from epochal.records.mail.outbox import read_specs

    changes = to_overrides(read_choices(args), split_files_and_overrides(args.words)[1])
    config = load(file, variant=args.variant, overrides=changes, allow_python=args.allow_python)
    root = check(config).expanded
    record = root.mapping["record"].to_plain()
    folder = Path(record["log_dir"]).expanduser()
    return MailSettings(
        root=folder.parent if record["exact"] else folder,
        tag=str(root.mapping["tag"].value),
        specs=read_specs(root),
    )


def require_keep_alive(args: argparse.Namespace) -> None:
    """Refuse options that need ``--keep-alive`` without it."""
    is_pool = args.devices is not None or args.per_device is not None
    has_ranks = (args.nproc or args.gpus or 0) > 1 or "," in str(args.device) or args.nnodes
    for name in ("install", *(() if is_pool or has_ranks else ("dry_run",)), "again"):
        if getattr(args, name) and not args.keep_alive:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(Problem(option, "needs --keep-alive", hint=f"--keep-alive {option}"))


def _refuse_unsupported(args: argparse.Namespace, files: Sequence[Path]) -> None:
    what, hint = "", ""
    if len(files) > 1 or args.variant == "all":
        what, hint = "restarts one run only", "start one command for each config"
    elif args.no_file:
        what, hint = "a run without a record cannot be resumed", "leave out --no-file"
    elif args.dry_run and not args.install:
        what, hint = (
            "--dry-run shows what --install would write",
            "--keep-alive --install --dry-run",
        )
    elif args.restarts < 0:
        what, hint = f"--restarts cannot be {args.restarts}", "--restarts 10"
    if what:
        raise ConfigError(Problem("--keep-alive", what, hint=hint))


def _install(args: argparse.Namespace, name: str, command: list[str]) -> None:
    from epochal.launch.start_at_boot import install, make_job, plan_installation

    job = make_job(name, command)
    plan = plan_installation(job)
    if args.dry_run:
        print(f"would write to {plan.where}:\n\n{plan.text.rstrip()}")
        return
    install(job, plan)
    print(f"wrote to {plan.where}:\n\n{plan.text.rstrip()}\n")
    print(f"remove it with: {plan.removal}" + (f"\n{plan.remark}" if plan.remark else ""))


def _own_words(typed: Sequence[str]) -> list[str]:
    """The command line without the options of the supervisor."""
    words, rest = [], iter(typed)
    for word in rest:
        if word in _WITH_VALUE:
            next(rest, None)
        elif word not in _FLAGS and not word.startswith(tuple(f"{one}=" for one in _WITH_VALUE)):
            words.append(word)
    return words


def _installed_words(typed: Sequence[str]) -> list[str]:
    """The command line after a reboot: the same, with ``--again``, which ends if all is done."""
    return [*(word for word in typed if word not in ("--install", _AGAIN)), _AGAIN]


def _options_of_process(args: argparse.Namespace) -> list[str]:
    """Options of the process, which the record of a run does not have."""
    options = [("--device", args.device), ("--gpus", args.gpus), ("--nproc", args.nproc)]
    words = [text for name, value in options if value is not None for text in (name, str(value))]
    words += ["--debug"] if args.debug else []
    return words + (["--allow-changed"] if args.allow_changed else [])


def _print_notice(text: str) -> None:
    print(f"keep-alive: {text}", file=sys.stderr, flush=True)
