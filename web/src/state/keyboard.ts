/** Keys: which function a key calls; a page adds its own while it is shown. */

export type Keys = Record<string, (event: KeyboardEvent) => void>;

const layers: Keys[] = [];

/** Add keys above those that are there; the result removes them. */
export function addKeys(keys: Keys): () => void {
  layers.push(keys);
  return () => {
    const place = layers.indexOf(keys);
    if (place >= 0) layers.splice(place, 1);
  };
}

interface Target {
  tagName?: string;
  isContentEditable?: boolean;
  type?: string;
}

/** Whether a key that is typed there is text. */
export function isTyping(target: Target | null): boolean {
  if (!target) return false;
  const isText = target.tagName === "INPUT" && !["checkbox", "range", "button"].includes(target.type ?? "");
  return isText || target.tagName === "TEXTAREA" || target.tagName === "SELECT" || !!target.isContentEditable;
}

/** Call the function of a key; letters typed into a field stay text, Escape always counts. */
export function handleKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (isTyping(event.target as Target | null) && event.key !== "Escape") return;
  for (let i = layers.length - 1; i >= 0; i--) {
    const action = layers[i]?.[event.key];
    if (action) {
      event.preventDefault();
      action(event);
      return;
    }
  }
}
