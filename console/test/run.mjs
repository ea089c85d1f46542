// Tests the page in a real Chromium against the real program. `--screenshots` also writes the pictures of the guides.
import assert from "node:assert/strict";
import { cleanUp, openBrowser } from "./bench.mjs";
import * as built from "./built.mjs";
import * as controls from "./controls.mjs";
import * as copying from "./copying.mjs";
import * as faults from "./faults.mjs";
import * as finding from "./finding.mjs";
import * as hostile from "./hostile.mjs";
import * as legible from "./legible.mjs";
import * as mail from "./mail.mjs";
import * as report from "./report.mjs";
import * as secretKeys from "./secret_keys.mjs";
import * as signing from "./signing.mjs";
import * as views from "./views.mjs";

const ALL = [built, signing, views, controls, finding, secretKeys, copying, mail, legible, report, hostile, faults];

const only = process.argv.slice(2).find((word) => !word.startsWith("--"));
const start = performance.now();
let [passed, failed] = [0, 0];
try {
  const browser = await openBrowser();
  for (const tests of ALL) {
    for (const [name, test] of Object.entries(tests)) {
      if (only && !name.includes(only)) continue;
      const began = performance.now();
      try {
        await test(browser, assert);
        passed += 1;
        console.log(`test console::${name} ... ok (${((performance.now() - began) / 1000).toFixed(1)}s)`);
      } catch (error) {
        failed += 1;
        console.log(`test console::${name} ... FAILED\n${error.stack}\n`);
      }
      for (const page of browser.pages().slice(1)) await page.close();
    }
  }
} finally {
  await cleanUp();
}
const counts = failed ? `${failed} failed, ${passed} passed` : `${passed} passed`;
console.log(`${counts} in ${((performance.now() - start) / 1000).toFixed(1)}s`);
process.exit(failed ? 1 : 0);
