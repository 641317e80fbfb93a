// Unpacks the browser of @sparticuz/chromium into a folder, with the libraries it needs, without root.
import { existsSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";

const target = resolve(process.argv[2]);
if (!existsSync(target)) {
  const folder = mkdtempSync(`${target}-`); // renamed when complete, so that an interrupt leaves no half browser
  process.env.TMPDIR = folder;
  const { inflate } = await import("@sparticuz/chromium");
  const require = createRequire(import.meta.url);
  const packed = join(dirname(require.resolve("@sparticuz/chromium")), "..", "bin");
  for (const name of ["chromium.br", "fonts.tar.br", "swiftshader.tar.br", "al2023.tar.br"]) {
    await inflate(join(packed, name));
  }
  try {
    renameSync(folder, target);
  } catch (error) {
    rmSync(folder, { recursive: true });
    if (!existsSync(target)) throw error; // another process was first
  }
}
