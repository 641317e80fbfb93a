"""A mailbox and a mail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from epochal.records.mail.compose import MailContent, compose
from epochal.records.mail.mailbox import Mail, Mailbox

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def box(tmp_path: Path) -> Mailbox:
    return Mailbox(tmp_path / "runs")


@pytest.fixture
def mail() -> Mail:
    content = MailContent(
        kind="failed",
        tag="digits",
        run="shop/digits/20261115-031200-a3f9",
        seconds=200.0,
        step=1200,
        epoch=3,
        monitor="val/acc",
        best=0.91234,
        why="ValueError: schöne Formen\npassen nicht",
        traceback="Traceback ...\nValueError: schöne Formen",
    )
    return compose(content)
