// The report of `tollgate replay` in the browser: one file that asks for nothing, with every chart, in the light and in the dark.
import { copyFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { Server, overflows, root } from "./bench.mjs";
import { looks } from "./contrast.mjs";
import { picture } from "./steps.mjs";

const rules = (limits) => `rules: { client: { by: ip, limits: ${limits} } }\npolicies: { api: [client] }\n`;

/** The report that the guide writes. */
function written() {
  const home = new Server(rules("[1/s, 5/min]"), 0);
  writeFileSync(join(home.home, "today.yaml"), rules("[1/s, 20/min]"));
  copyFileSync(join(root, "examples/logs/access.log"), join(home.home, "access.log"));
  return home.command("replay", "--config", "tollgate.yaml", "--against", "today.yaml", "--curve", "client", "--report", "report.html", "access.log").then((done) => ({ ...done, file: join(home.home, "report.html") }));
}

export async function the_report_of_a_replay_shows_every_chart_and_asks_for_nothing(browser, assert) {
  const { code, said, file } = await written();
  assert.equal(code, 0, said);
  const page = await browser.newPage();
  const [asked, faults] = [[], []];
  page.on("request", (request) => asked.push(request.url()));
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (line) => faults.push(line.text()));
  await page.setViewportSize({ width: 1000, height: 760 });
  const address = pathToFileURL(file).href;
  await page.goto(address);
  for (const title of ["Denials over time", "Rules", "Keys denied", "Impact curve", "Difference", "Possible false positives", "What was read"]) {
    await page.getByRole("heading", { name: title, exact: true }).waitFor();
  }
  const charts = page.locator("svg");
  assert.ok((await charts.count()) >= 4, "time, keys, curve and difference");
  for (const chart of await charts.all()) {
    const box = await chart.boundingBox();
    assert.ok(box.width > 200 && box.height > 20, JSON.stringify(box));
    assert.ok((await chart.locator("path, rect, circle").count()) > 1, "the chart has figures");
  }
  // The same colours as in the console, with a legend.
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    const { back, pale } = await looks(page);
    assert.equal(back < 0.2, colorScheme === "dark", `the background: ${back}`);
    assert.deepEqual(pale, [], colorScheme);
    const colours = await page.evaluate(() => {
      const area = getComputedStyle(document.querySelector(".area.deny")).fill;
      return [area, getComputedStyle(document.querySelector(".legend .swatch.deny")).color];
    });
    assert.equal(colours[0], colours[1]);
    assert.notEqual(colours[0], "rgb(0, 0, 0)");
  }
  await page.emulateMedia({ colorScheme: "light" });
  await picture(page, "replay-report");
  await page.setViewportSize({ width: 360, height: 740 });
  assert.equal(await overflows(page), false, "it fits on a phone");
  assert.deepEqual(asked, [address]);
  assert.deepEqual(faults, []);
}
