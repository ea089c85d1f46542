// Builds the page: one script, one style sheet, one document, one icon. `node build.mjs DIR` writes to DIR.
import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "dist");
mkdirSync(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { console: "src/main.tsx" },
  bundle: true,
  minify: true,
  charset: "utf8",
  legalComments: "none",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  outdir: out,
  logLevel: "warning",
});
for (const file of ["index.html", "console.svg"]) {
  copyFileSync(join(here, "src", file), join(out, file));
}
