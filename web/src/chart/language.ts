/** Makes the language of the browser one that numbers can be formatted in, before uPlot reads it.
 *  Chromium reports "en-US@posix" where the locale of the system is C. */
export function repairLanguage(browser: { readonly language: string }): void {
  try {
    new Intl.NumberFormat(browser.language);
  } catch {
    Object.defineProperty(browser, "language", { value: "en", configurable: true });
  }
}
