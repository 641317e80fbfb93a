/** How many mails are unread, for the title and the navigation. */

class MailboxState {
  unread = $state(0);
}

export const mailbox = new MailboxState();
