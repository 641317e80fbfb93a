"""Mails about runs and the mailbox that stores them, one small file each."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, final, get_args

from epochal import durable
from epochal.errors import RecordError
from epochal.records.layout.run_folders import EPOCHAL_DIR, make_epochal_dir

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

FOLDER, INBOX, OUTBOX = "mail", "inbox", "outbox"
ALL, READ, LAST = "all", "read", "last"
"""Words that select mails, beside their ids."""

Kind = Literal[
    "finished", "failed", "stalled", "diverged", "out_of_disk", "lost", "gave_up", "sweep_done"
]
KINDS: tuple[Kind, ...] = get_args(Kind)

LEVELS: Mapping[str, str] = MappingProxyType(
    {"finished": "info", "sweep_done": "info", "stalled": "warning"}
)
"""Severity of each kind; kinds that are not listed are an ``error``."""

_ID_LENGTH = 10


@final
@dataclass(frozen=True, kw_only=True)
class Mail:
    """One mail about a run: a subject and a full text."""

    id: str
    """The same for the same event, whichever process reports it."""

    kind: Kind
    subject: str
    """One line: outcome, run, duration, best value, and reason."""

    text: str
    time: str
    """ISO-8601 in UTC."""

    run: str = ""
    """Folder of the run, relative to the folder of all runs; empty if it has none."""

    sender: Mapping[str, Any] = field(default_factory=dict)
    """Where it comes from: tag, project, runner, host, start time, folder."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """The subject as data: seconds, step, epoch, monitor, best, metrics, error."""

    is_read: bool = False
    is_archived: bool = False

    @property
    def level(self) -> str:
        """``info``, ``warning`` or ``error``."""
        return LEVELS.get(self.kind, "error")

    def to_json(self) -> dict[str, Any]:
        """Plain data, as stored in the mailbox and posted by a webhook."""
        names = ("id", "kind", "level", "subject", "text", "time", "run")
        plain: dict[str, Any] = {name: getattr(self, name) for name in names}
        return plain | {"sender": dict(self.sender), "facts": dict(self.facts)}


def parse_mail(value: Mapping[str, Any]) -> Mail | None:
    """The mail that plain data describes; None if the data is not a valid mail."""
    texts = {name: value.get(name) for name in ("id", "kind", "subject", "text", "time", "run")}
    if not all(isinstance(text, str) for text in texts.values()) or texts["kind"] not in KINDS:
        return None
    if not str(texts["id"]).isalnum():  # it becomes a file name and must not leave the folder
        return None
    if not is_run_name(str(texts["run"])):
        return None
    maps = {
        name: found if isinstance(found := value.get(name), dict) else {}
        for name in ("sender", "facts")
    }
    known: dict[str, Any] = {**texts, **maps}
    return Mail(
        **known, is_read=value.get("read") is True, is_archived=value.get("archived") is True
    )


def is_run_name(run: str) -> bool:
    """Whether a text can be the path of a run below the folder of all runs, or is empty."""
    path = PurePath(run)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in run


@final
class Mailbox:
    """The mails about the runs below ``root``, the folder of all runs.

    No folder is created before the first mail. There are no locks: a mail is written completely
    or not at all, and of two concurrent changes the later one wins.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def folder(self) -> Path:
        """Folder of its files; it may not exist yet."""
        return self.root / EPOCHAL_DIR / FOLDER

    def make_folder(self, name: str) -> Path:
        """One of its subfolders, created if missing; may raise OSError."""
        make_epochal_dir(self.root)
        durable.make_inner_dir(self.folder)
        durable.make_inner_dir(self.folder / name)
        return self.folder / name

    def post(self, mail: Mail) -> None:
        """Store a mail, replacing one with the same id; may raise OSError."""
        folder = self.make_folder(INBOX)
        state = {"read": mail.is_read, "archived": mail.is_archived}
        durable.write_json(folder / f"{mail.id}.json", mail.to_json() | state)

    def mails(self) -> list[Mail]:
        """All mails, newest last; unreadable files are left out."""
        found = (parse_mail(durable.find_object(path)) for path in self._files(INBOX))
        return sorted((mail for mail in found if mail), key=lambda mail: (mail.time, mail.id))

    def select(self, words: Sequence[str]) -> list[Mail]:
        """The mails that words name: ids or id prefixes, runs, ``last``, ``read``, ``all``.

        Raises RecordError if a word matches no mail, or an id prefix matches several.
        """
        mails = self.mails()
        selected = {mail.id for word in words for mail in _matching(word, mails)}
        return [mail for mail in mails if mail.id in selected]

    def count_unread(self) -> int:
        """Number of mails that are neither read nor archived."""
        return sum(not (mail.is_read or mail.is_archived) for mail in self.mails())

    def count_outbox(self) -> int:
        """Number of files in the outbox, also of other users."""
        return len(self._files(OUTBOX))

    def mark(
        self, mails: Iterable[Mail], *, is_read: bool | None = None, is_archived: bool | None = None
    ) -> None:
        """Change the state of mails; mails that were deleted meanwhile stay deleted."""
        for mail in mails:
            changed = replace(
                mail,
                is_read=mail.is_read if is_read is None else is_read,
                is_archived=mail.is_archived if is_archived is None else is_archived,
            )
            if changed != mail and self._path(mail).exists():
                self.post(changed)

    def delete(self, mails: Iterable[Mail]) -> None:
        """Delete mails."""
        for mail in mails:
            if self._path(mail).exists():
                durable.remove_file(self._path(mail))

    def _path(self, mail: Mail) -> Path:
        return self.folder / INBOX / f"{mail.id}.json"

    def _files(self, name: str) -> list[Path]:
        return [*(self.folder / name).glob("[!.]*.json")]


def search_mails(mails: Iterable[Mail], words: Iterable[str]) -> list[Mail]:
    """The mails that contain every word in subject, run or text."""
    wanted = [word.casefold() for word in words]
    texts = [(mail, f"{mail.subject}\n{mail.run}\n{mail.text}".casefold()) for mail in mails]
    return [mail for mail, text in texts if all(word in text for word in wanted)]


def make_id(*words: object) -> str:
    """The id of the event that these words identify."""
    text = "\0".join(map(str, words))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:_ID_LENGTH]


def _matching(word: str, mails: list[Mail]) -> list[Mail]:
    if word == ALL:
        return mails
    if word == READ:
        return [mail for mail in mails if mail.is_read]
    if word == LAST:
        return mails[-1:]
    found = [mail for mail in mails if mail.id.startswith(word)]
    if len(found) > 1:
        shown = "\n".join(f"  {mail.id}  {mail.subject}" for mail in found[-8:])
        raise RecordError(f"{word}: matches {len(found)} mails\n{shown}")
    name = word.rstrip("/")
    found = found or [mail for mail in mails if name in mail.run.rpartition("/")[2]]
    if not found or not name:
        raise RecordError(f"{word}: no such mail\n  `epochal mail --all` lists them")
    return found
