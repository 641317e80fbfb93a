"""The mailbox: mails about what happened to runs, and the channels that send them."""

from epochal.records.mail.compose import MailContent, compose
from epochal.records.mail.mailbox import KINDS, Mail, Mailbox

__all__ = ["KINDS", "Mail", "MailContent", "Mailbox", "compose"]
