import svelte from "eslint-plugin-svelte";
import ts from "typescript-eslint";

import svelteConfig from "./svelte.config.js";

const FORBIDDEN = ["innerHTML", "outerHTML", "insertAdjacentHTML", "srcdoc"];

export default ts.config(
  { ignores: ["node_modules/", "public/"] },
  ...ts.configs.strict,
  ...svelte.configs.recommended,
  {
    files: ["**/*.svelte", "**/*.svelte.ts"],
    languageOptions: { parserOptions: { parser: ts.parser, svelteConfig } },
  },
  {
    rules: {
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-restricted-syntax": [
        "error",
        ...FORBIDDEN.map((name) => ({
          selector: `MemberExpression[property.name='${name}']`,
          message: "user text is shown as text nodes only",
        })),
        {
          selector: "SvelteAttribute[key.name='style']",
          message: "the content security policy refuses it; write style:name={value}",
        },
      ],
      "svelte/no-at-html-tags": "error",
      "svelte/prefer-svelte-reactivity": "off", // maps and sets are replaced, never changed
      "svelte/no-navigation-without-resolve": "off", // there is no SvelteKit here
    },
  },
);
