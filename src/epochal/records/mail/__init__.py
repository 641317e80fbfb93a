"""The mailbox: mails about runs, and the channels that send them."""
