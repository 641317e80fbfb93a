/** How many mails are unread, for the title, the navigation, and notifications of the browser. */

type Permission = "default" | "granted" | "denied" | "none";

class MailboxState {
  unread = $state(0);
  permission = $state<Permission>(typeof Notification === "undefined" ? "none" : Notification.permission);

  async askPermission(): Promise<void> {
    this.permission = await Notification.requestPermission();
  }

  /** Take a new number of unread mails; `text` is shown if there are more, and if the user allowed it. */
  update(unread: number, text: () => string): void {
    if (unread > this.unread && this.permission === "granted" && document.hidden) {
      new Notification("Epochal", { body: text(), tag: "mail", icon: "/icon.svg" });
    }
    this.unread = unread;
  }
}

export const mailbox = new MailboxState();
