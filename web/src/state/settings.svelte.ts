/** What this browser remembers: theme, language, columns. */

export type Theme = "system" | "light" | "dark";
export type Language = "en" | "zh";

const PREFIX = "epochal.";

function read(name: string): string | null {
  try {
    return localStorage.getItem(PREFIX + name);
  } catch {
    return null; // storage is switched off
  }
}

function write(name: string, value: string): void {
  try {
    localStorage.setItem(PREFIX + name, value);
  } catch {
    // the setting holds until the page is closed
  }
}

function firstLanguage(): Language {
  const stored = read("language");
  if (stored === "en" || stored === "zh") return stored;
  return typeof navigator !== "undefined" && navigator.language.startsWith("zh") ? "zh" : "en";
}

function firstTheme(): Theme {
  const stored = read("theme");
  return stored === "light" || stored === "dark" ? stored : "system";
}

class Settings {
  language = $state<Language>(firstLanguage());
  theme = $state<Theme>(firstTheme());
  isSystemDark = $state(false);
  readonly isDark = $derived(this.theme === "dark" || (this.theme === "system" && this.isSystemDark));

  /** Follow the system, and show theme and language on the root element. */
  apply(): void {
    const query = matchMedia("(prefers-color-scheme: dark)");
    this.isSystemDark = query.matches;
    query.addEventListener("change", () => (this.isSystemDark = query.matches));
    $effect(() => {
      document.documentElement.dataset.theme = this.isDark ? "dark" : "light";
      document.documentElement.lang = this.language === "zh" ? "zh-CN" : "en";
    });
  }

  setLanguage(language: Language): void {
    this.language = language;
    write("language", language);
  }

  toggleTheme(): void {
    const next = this.isDark ? "light" : "dark";
    this.theme = (next === "dark") === this.isSystemDark ? "system" : next;
    write("theme", this.theme);
  }

  remember(name: string, value: unknown): void {
    write(name, JSON.stringify(value));
  }

  forget(name: string): void {
    try {
      localStorage.removeItem(PREFIX + name);
    } catch {
      // there is nothing to forget
    }
  }

  recall<T>(name: string, fallback: T): T {
    try {
      return (JSON.parse(read(name) ?? "null") as T | null) ?? fallback;
    } catch {
      return fallback;
    }
  }
}

export const settings = new Settings();
