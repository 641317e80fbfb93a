"""The mail about the end of a run that is kept alive, which only its supervisor can judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.errors import EpochalError
from epochal.launch.restarts import SUCCESS
from epochal.records.mail.box import Mailbox
from epochal.records.mail.compose import Story, compose
from epochal.records.mail.expected import Posted, conclude, find_box, settle
from epochal.records.mail.outbox import pack
from epochal.records.mail.sending import Sending
from epochal.records.mail.story import kind_of
from epochal.records.read import read_run

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.launch.restarts import Decision, Ending
    from epochal.records.mail.channel import Spec
    from epochal.records.mail.letter import Kind

PATIENCE_SECONDS = 10.0
_INTERRUPTED = 130


@final
@dataclass(frozen=True, kw_only=True)
class Home:
    """Where the mail about a run goes that came to nothing before it had a folder."""

    root: Path
    """Folder of all runs."""

    tag: str = ""
    specs: Sequence[Spec] = ()
    """Who is told, as the section ``notify`` says."""


FindHome = Callable[[], Home | None]


def say_farewell(
    folder: Path | None, ending: Ending, decision: Decision, find_home: FindHome
) -> str:
    """Post the mail about a run that is not started again; gives its subject.

    Nothing if the run told of its end itself, or somebody was there. It does not raise: a
    supervisor has no other way to tell than to go on.
    """
    try:
        posted = _post(folder, ending, decision, find_home)
    except (OSError, EpochalError):
        return ""
    if posted is None:
        return ""
    sending = Sending()
    sending.start(posted.parcels)
    sending.wait(PATIENCE_SECONDS)
    return posted.mail.subject


def _post(
    folder: Path | None, ending: Ending, decision: Decision, find_home: FindHome
) -> Posted | None:
    expected = None if folder is None else find_box(folder)
    why = f"it {ending}; {decision.why}" if decision.is_surrender else ""
    if expected is not None and ending.code == _INTERRUPTED:
        settle(*expected)
    elif expected is not None and folder is not None:
        box, run = expected
        return conclude(box, run, kind=_kind(folder, decision), why=why)
    elif ending.code not in (SUCCESS, _INTERRUPTED):
        home = find_home()
        return None if home is None else _post_without_run(home, why or f"it {ending}")
    return None


def _kind(folder: Path, decision: Decision) -> Kind:
    summary = read_run(folder).summary
    found = kind_of(summary.status, summary.reason)
    return "gave_up" if decision.is_surrender or found is None or found == "lost" else found


def _post_without_run(home: Home, why: str) -> Posted:
    box = Mailbox(home.root)
    mail = compose(Story(kind="gave_up", tag=home.tag, why=why))
    parcels = pack(mail, home.specs, box)
    box.post(mail)
    return Posted(mail, parcels)
