/** The time, for texts such as "5 min ago"; it moves every 15 seconds. */

class Clock {
  now = $state(Date.now());

  start(): () => void {
    const timer = setInterval(() => (this.now = Date.now()), 15_000);
    return () => clearInterval(timer);
  }
}

export const clock = new Clock();
