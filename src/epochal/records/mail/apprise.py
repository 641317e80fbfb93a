"""Mail through Apprise, which knows a hundred services by their addresses."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.records.mail.channel import Channel, SendError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.records.mail.letter import Mail

INSTALL = "pip install 'epochal[apprise]'"
_MAX_TEXT = 4000  # most services cut or refuse longer ones
_TYPES = {"info": "success", "warning": "warning", "error": "failure"}


@final
class Apprise(Channel):
    """Slack, Telegram, DingTalk, WeCom, Feishu and others, by the addresses of Apprise.

    Args:
        urls: One address, or several; each as ``${env:NAME}``, since the keys stand in them.
    """

    def __init__(self, *, urls: str | list[str]) -> None:
        self._urls = [urls] if isinstance(urls, str) else list(urls)

    @override
    def send(self, mail: Mail, *, seconds: float) -> None:
        try:
            import apprise
        except ImportError as error:
            raise SendError(f"apprise is not installed: {INSTALL}") from error
        services = apprise.Apprise()
        if not all(services.add(url) for url in self._urls):
            raise SendError("an address is none that Apprise knows", is_final=True)
        text = mail.text if len(mail.text) <= _MAX_TEXT else f"{mail.text[:_MAX_TEXT]}\n…"
        with _hearing() as ear:
            is_sent = services.notify(title=mail.subject, body=text, notify_type=_TYPES[mail.level])
        if not is_sent:
            raise SendError(": ".join(["Apprise could not send it", *ear.words[-1:]]))


@final
class _Ear(logging.Handler):
    """Hears what Apprise logs, which is the only place where it says why."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.words: list[str] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.words.append(record.getMessage())


@contextmanager
def _hearing() -> Iterator[_Ear]:
    ear, logger = _Ear(), logging.getLogger("apprise")
    logger.addHandler(ear)
    try:
        yield ear
    finally:
        logger.removeHandler(ear)
