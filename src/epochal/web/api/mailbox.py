"""The mails about runs, for the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochal.records.layout.sweep_folders import SWEEPS_DIR
from epochal.records.mail.mailbox import Mailbox

if TYPE_CHECKING:
    from epochal.records.mail.mailbox import Mail
    from epochal.web.site.route import ApiCall
    from epochal.web.site.site import Site

MAX_MAILS = 500


def get_mail(site: Site, call: ApiCall) -> dict[str, Any]:
    """The newest mails, the last one first."""
    mails = [mail for mail in Mailbox(site.index.root).mails() if not mail.is_archived]
    return {
        "unread": sum(not mail.is_read for mail in mails),
        "mails": [_to_json(mail) for mail in mails[: -MAX_MAILS - 1 : -1]],
    }


def _to_json(mail: Mail) -> dict[str, Any]:
    names = ("id", "kind", "level", "subject", "text", "time", "is_read")
    folder, _, last = mail.run.rstrip("/").rpartition("/")
    is_sweep = folder == SWEEPS_DIR
    about = {"run": "" if is_sweep else last, "sweep": last if is_sweep else ""}
    return {name: getattr(mail, name) for name in names} | about


def mark_mail(site: Site, call: ApiCall) -> dict[str, Any]:
    """Mark mails as read or unread, or archive them."""
    box, ids = Mailbox(site.index.root), {*call.body["ids"]}
    mails = [mail for mail in box.mails() if mail.id in ids]
    box.mark(mails, is_read=call.body["read"], is_archived=call.body["archived"])
    return {"changed": len(mails), "unread": box.count_unread()}
