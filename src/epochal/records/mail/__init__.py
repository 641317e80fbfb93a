"""The mailbox: what happened to runs while nobody looked, and who is told of it."""

from epochal.records.mail.box import Mailbox
from epochal.records.mail.compose import Story, compose
from epochal.records.mail.letter import KINDS, Mail

__all__ = ["KINDS", "Mail", "Mailbox", "Story", "compose"]
