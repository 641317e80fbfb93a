"""``epochal mail``: messages about runs, and mail that has not been sent yet."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.cli.arguments import add_json_option, add_runs_dir_option, print_json
from epochal.cli.draw.text_table import format_table
from epochal.errors import ConfigError, Problem, RecordError
from epochal.experiment.config.choices import add_options
from epochal.records.find import read_run
from epochal.records.layout.sweep_folders import is_sweep_folder
from epochal.records.mail.lost_run_mail import post_lost_runs
from epochal.records.mail.mailbox import OUTBOX, Mailbox, search_mails
from epochal.records.mail.outbox import BackgroundSender, Delivery, queue_mail, read_outbox
from epochal.records.mail.signing import KeyUnusableError, check_key
from epochal.text.command import epochal_command
from epochal.text.escape import escape_control
from epochal.text.formatting import format_count
from epochal.text.terminal import print_wrapped, terminal_width

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from epochal.records.mail.mailbox import Mail

_SHOWN_ID = 6
_LIMIT = 30
_SEND_SECONDS = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    text = "id of a mail or its beginning, id of a run, `last`, `read` or `all`"
    parser.add_argument("words", nargs="*", metavar="MAIL", help=text)
    texts = {
        "--unread": "only unread mails",
        "--all": "include archived mails",
        "--search WORDS": "only mails that contain all these words",
        "--limit N": f"the newest N (default: {_LIMIT})",
        "--archive": "archive mails",
        "--delete": "delete mails",
        "--send": "send all unsent mail",
    }
    add_options(parser, texts, limit=_LIMIT)
    parser.add_argument("--mark", choices=("read", "unread"), help="mark mails as read or unread")
    text = "send a test mail with the notify section of a config"
    parser.add_argument("--try", dest="trial", type=Path, metavar="FILE", help=text)
    add_runs_dir_option(parser)
    add_json_option(parser)


def execute(args: argparse.Namespace) -> int:
    """List, show, change or send mails."""
    box = Mailbox(args.runs_dir)
    if args.trial is not None:
        return _send_trial(args.trial)
    post_lost_runs(box)
    if args.send:
        return _send_unsent(box)
    if args.archive or args.delete or args.mark:
        return _change(box, args)
    if args.words:
        _show(box, box.select(args.words), is_json=args.json)
    else:
        _list(box, args)
    return 0


def _selected(box: Mailbox, args: argparse.Namespace) -> list[Mail]:
    mails = box.select(args.words) if args.words else box.mails()
    if not (args.all or args.words):
        mails = [mail for mail in mails if not mail.is_archived]
    if args.unread:
        mails = [mail for mail in mails if not mail.is_read]
    return mails if args.search is None else search_mails(mails, args.search.split())


def _change(box: Mailbox, args: argparse.Namespace) -> int:
    if not args.words and args.search is None and not args.unread:
        option = next(name for name in ("archive", "delete", "mark") if getattr(args, name))
        hint = f"{epochal_command()} mail read --{option}, or the ids of mails"
        raise ConfigError(Problem(f"--{option}", "does not say which mails", hint=hint))
    mails = _selected(box, args)
    if args.delete:
        box.delete(mails)
        done = "deleted"
    elif args.archive:
        box.mark(mails, is_read=True, is_archived=True)
        done = "archived"
    else:
        box.mark(mails, is_read=args.mark == "read", is_archived=False)
        done = f"marked as {args.mark}"
    print(f"{format_count(len(mails), 'mail')} {done}")
    return 0


def _show(box: Mailbox, mails: list[Mail], *, is_json: bool) -> None:
    if is_json:
        print_json([_to_json(box, mail) for mail in mails])
    else:
        for index, mail in enumerate(mails):
            if index:
                print("\n" + "-" * min(72, terminal_width()) + "\n")
            since = _since(box, mail)
            print_wrapped([mail.subject, f"{_local_time(mail)}, mail {mail.id[:_SHOWN_ID]}"])
            print_wrapped([f"since then: {since}\n" if since else ""])
            print(escape_control(mail.text.rstrip()))
    try:
        box.mark(mails, is_read=True)
    except OSError as error:  # the mail was shown anyway
        print(f"cannot mark as read: {error}", file=sys.stderr)


def _list(box: Mailbox, args: argparse.Namespace) -> None:
    found = _selected(box, args)
    mails = found[-args.limit :] if args.limit > 0 else []
    if args.json:
        print_json([_to_json(box, mail) for mail in mails])
        return
    if mails:
        print(_table(box, mails))
        more = f", {len(found) - len(mails)} older ones" if len(found) > len(mails) else ""
        shown = mails[-1].id[:_SHOWN_ID]
        hint = f"{box.count_unread()} unread{more}; `{epochal_command()} mail {shown}` shows one"
        print_wrapped(["", hint])
    else:
        is_narrow = args.unread or args.search or args.limit <= 0
        print(f"no {'such ' if is_narrow else ''}mail in {box.root}")
    unsent = read_outbox(box)
    _print_unsent(unsent)
    _print_unsigned(box, unsent)


def _table(box: Mailbox, mails: list[Mail]) -> str:
    rows = [
        ("" if mail.is_read else "*", mail.id[:_SHOWN_ID], _local_time(mail), _since(box, mail))
        for mail in mails
    ]
    has_since = any(row[3] for row in rows)
    header = ("", "mail", "when", *(["since then"] if has_since else []), "subject")
    lines = [
        (*row[:3], *([row[3]] if has_since else []), mail.subject)
        for row, mail in zip(rows, mails, strict=True)
    ]
    return format_table(header, lines, has_prose=True)


def _local_time(mail: Mail) -> str:
    try:
        return f"{datetime.fromisoformat(mail.time).astimezone():%b %d %H:%M}"
    except ValueError:
        return mail.time


def _since(box: Mailbox, mail: Mail) -> str:
    """What happened to the run after the mail; empty if nothing."""
    if not mail.run or is_sweep_folder(box.root / mail.run):
        return ""
    try:
        summary = read_run(box.root / mail.run, box.root).summary
    except RecordError:
        return "deleted"
    if summary.attempt != mail.facts.get("attempt"):
        return f"resumed, {summary.status}"
    is_moving = mail.kind == "stalled" and summary.status != "running"
    return summary.status if is_moving else ""


def _to_json(box: Mailbox, mail: Mail) -> dict[str, object]:
    state = {"read": mail.is_read, "archived": mail.is_archived, "since": _since(box, mail)}
    return mail.to_json() | state


def _send_unsent(box: Mailbox) -> int:
    deliveries = read_outbox(box)
    _print_unsigned(box, deliveries)
    _send(deliveries)
    count = format_count(len(deliveries), "mail")
    print(f"{count} sent" if deliveries else "there is no unsent mail of your runs")
    return 0


def _print_unsigned(box: Mailbox, own: Sequence[Delivery]) -> None:
    """Print why some files in the outbox are never sent by this user."""
    others = box.count_outbox() - len(own)
    if not others:
        return
    where = f"{box.folder / OUTBOX}: {format_count(others, 'file')} will not be sent"
    try:
        check_key()
    except KeyUnusableError as error:
        print_wrapped([f"{where}: your key cannot be used", f"  {error}"])
    else:
        print_wrapped([f"{where}: not written by one of your runs (copied, moved or changed)"])


def _send_trial(path: Path) -> int:
    from epochal.check import check
    from epochal.config import load
    from epochal.records.mail.compose import MailContent, compose
    from epochal.records.mail.outbox import read_specs

    report = check(load(path))
    problems = [one for one in report.problems if one.key.partition(".")[0] in ("notify", "env")]
    if problems:
        raise ConfigError(*problems)
    specs = read_specs(report.expanded)
    if not specs:
        hint = "add for example notify: [{type: smtp, host: ..., to: ...}]"
        raise ConfigError(Problem("notify", f"{path} has no recipients", hint=hint))
    tag = str(report.expanded.mapping["tag"].value)
    trial = MailContent(kind="finished", tag=tag, why="a test mail", seconds=0.0)
    deliveries = queue_mail(compose(trial), [{**spec, "kinds": None} for spec in specs], None)
    _send(deliveries)
    print("\n".join(f"sent by {delivery.spec['type']}" for delivery in deliveries))
    return 0


def _send(deliveries: Sequence[Delivery]) -> None:
    """Send each mail once; raises if some could not be sent, with the reasons."""
    sender = BackgroundSender(retry_seconds=())
    sender.start(deliveries)
    unsent = sender.wait(_SEND_SECONDS)
    if unsent:
        lines = [f"  {one.spec['type']}: {one.error or 'no answer'}" for one in unsent]
        count = format_count(len(deliveries), "mail")
        raise RecordError("\n".join([f"{len(unsent)} of {count} could not be sent", *lines]))


def _print_unsent(unsent: Sequence[Delivery]) -> None:
    if unsent:
        errors = [f"{one.spec['type']}: {one.error}" for one in unsent if one.error]
        reason = f" ({errors[-1]})" if errors else ""
        print_wrapped(
            [f"{len(unsent)} not sent{reason}; send with `{epochal_command()} mail --send`"]
        )
