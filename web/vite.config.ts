import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [svelte()],
  build: {
    outDir: "../src/epochal/web/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the content security policy refuses data: addresses
    modulePreload: { polyfill: false },
  },
  test: { include: ["tests/**/*.test.ts"], isolate: false },
});
