"""The mailbox: mails about what happened to runs, and the channels that send them."""
