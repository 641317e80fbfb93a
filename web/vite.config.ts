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
    cssCodeSplit: false, // one small file, so that no page waits for its own
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: "shared", test: /node_modules.(?!uplot)|src.(api|parts|state|text).|src.format|src.chart.(axes|groups|language|request)/, priority: 1 },
            { name: "charts", test: /node_modules.uplot|src.chart./ },
          ],
        },
      },
    },
  },
  test: { include: ["tests/**/*.test.ts"], isolate: false },
});
