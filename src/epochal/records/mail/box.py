"""The mailbox of all runs below a folder: one small file for each mail."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, final

from epochal import durable
from epochal.errors import RecordError
from epochal.records.home import HOME, home_of
from epochal.records.mail.letter import Mail, read_mail

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

FOLDER = "mail"
ALL, READ, LAST = "all", "read", "last"
"""Words that stand for mails, beside their ids."""


@final
class Mailbox:
    """The mails about the runs below a folder.

    Nothing is made before the first mail, and nothing waits for anybody: a mail is written whole
    or not at all, and of two commands that change one the later wins.

    Args:
        root: Folder of all runs, as ``record.log_dir`` names it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def folder(self) -> Path:
        """Where its files are, if there are any."""
        return self.root / HOME / FOLDER

    def make_folder(self, name: str) -> Path:
        """One of its folders, made if it is not there; may raise OSError."""
        folder = home_of(self.root) / FOLDER / name
        if not folder.is_dir():
            try:
                durable.make_dir(folder)
            except OSError:
                if not folder.is_dir():  # else another run made it in the meantime
                    raise
        return folder

    def post(self, mail: Mail) -> None:
        """Put a mail in; one with the same id is replaced. May raise OSError."""
        folder = self.make_folder("inbox")
        state = {"read": mail.is_read, "archived": mail.is_archived}
        durable.write_json(folder / f"{mail.id}.json", mail.to_json() | state)

    def mails(self) -> list[Mail]:
        """All of them, the newest last; what cannot be read is left out."""
        found = (read_mail(durable.find_object(path)) for path in self._paths())
        return sorted((mail for mail in found if mail), key=lambda mail: (mail.time, mail.id))

    def pick(self, words: Sequence[str]) -> list[Mail]:
        """The mails that words name: ids or their beginnings, runs, ``last``, ``read``, ``all``.

        Raises:
            RecordError: A word names none, or an id several.
        """
        mails = self.mails()
        picked = {mail.id: mail for word in words for mail in _named(word, mails)}
        return [mail for mail in mails if mail.id in picked]

    def count_unread(self) -> int:
        """How many nobody has read or put away yet."""
        return sum(not (mail.is_read or mail.is_archived) for mail in self.mails())

    def mark(
        self, mails: Iterable[Mail], *, is_read: bool | None = None, is_archived: bool | None = None
    ) -> None:
        """Change what was done with mails; one that is gone meanwhile stays gone."""
        for mail in mails:
            changed = replace(
                mail,
                is_read=mail.is_read if is_read is None else is_read,
                is_archived=mail.is_archived if is_archived is None else is_archived,
            )
            if changed != mail and self._path(mail).exists():
                self.post(changed)

    def delete(self, mails: Iterable[Mail]) -> None:
        """Remove mails for good."""
        for mail in mails:
            if self._path(mail).exists():
                durable.remove_file(self._path(mail))

    def _path(self, mail: Mail) -> Path:
        return self.folder / "inbox" / f"{mail.id}.json"

    def _paths(self) -> list[Path]:
        return [*(self.folder / "inbox").glob("[!.]*.json")]


def search(mails: Iterable[Mail], words: Iterable[str]) -> list[Mail]:
    """The mails in which every word stands somewhere."""
    wanted = [word.casefold() for word in words]
    texts = [(mail, f"{mail.subject}\n{mail.run}\n{mail.text}".casefold()) for mail in mails]
    return [mail for mail, text in texts if all(word in text for word in wanted)]


def _named(word: str, mails: list[Mail]) -> list[Mail]:
    if word == ALL:
        return mails
    if word == READ:
        return [mail for mail in mails if mail.is_read]
    if word == LAST:
        return mails[-1:]
    found = [mail for mail in mails if mail.id.startswith(word)]
    if len(found) > 1:
        shown = "\n".join(f"  {mail.id}  {mail.subject}" for mail in found[-8:])
        raise RecordError(f"{word}: fits {len(found)} mails\n{shown}")
    name = word.rstrip("/")
    found = found or [mail for mail in mails if name in mail.run.rpartition("/")[2]]
    if not found or not name:
        raise RecordError(f"{word}: no such mail\n  `epochal mail --all` lists them")
    return found
