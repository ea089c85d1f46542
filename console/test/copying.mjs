// Rules copied as YAML: what is copied loads, means the same, and says what it cannot contain.
import { KEYS, Server, go } from "./bench.mjs";
import { opened } from "./steps.mjs";

const DATABASE = `databases: { shop: { url: "postgres://nobody@127.0.0.1:1/shop" } }\n`;
const CONFIG = `${KEYS}store: memory
${DATABASE}rules:
  hidden: { by: token, limits: 9/hour, secret: true, overrides: { gold-token: [900/hour] } }
  deals:
    by: advertiser
    count_rows: { in: shop, query: "SELECT count(*) FROM deals WHERE advertiser = $1 AND state = 'it''s: open'", at_most: 10, reserve: 45s, cache: 2s, timeout: 300ms }
    overrides: { big: 500 at once for 45s }
  user: { by: user, limits: [20/min, 500/day], overrides: { batch: [2000/min] }, ban: after 100 denials in 10m ban 1h }
  pages: { by: [user, path], limits: 7/s burst 70, count_when: [401, 4xx], on_exceed: wait 5s, enabled: false, code: TOO_FAST }
  aligned: { by: user, limits: 3/hour, on_exceed: { defer: { aligned: true, jitter: 30s } }, on_outage: allow, count: bytes }
  free: { by: user, limits: unlimited }
policies: { api: [hidden, user, pages, aligned, free], deals: [deals] }
`;
const RULES = ["hidden", "deals", "user", "pages", "aligned", "free"];
const HOSTILE = "line\none: [x] # \u202e\u0085\u007f \"quoted\" \\ ü";

/** The configured rules of a server, without what the copies leave out. */
async function configured(server, drop) {
  const { rules } = (await server.call("GET", "api/v1/counters")).body;
  for (const rule of Object.values(rules)) delete rule.override_ends;
  if (drop) {
    rules.hidden.overrides = {};
    delete rules.user.overrides.ada;
  }
  return Object.fromEntries(RULES.map((name) => [name, rules[name]]));
}

export async function a_copied_rule_loads_and_means_the_same(browser, assert) {
  const { server, page } = await opened(browser, CONFIG);
  await server.call("PUT", "api/v1/counters/user/ada", { limits: ["7/min"], for: "1d" });
  await server.call("PUT", `api/v1/counters/user/${encodeURIComponent(HOSTILE)}`, { limits: ["8/min"] });
  await server.call("PUT", "api/v1/counters/hidden/silver-token", { limits: ["90/hour"] });
  await go(page, "rules");
  const row = (name) => page.getByRole("row").filter({ has: page.locator("td[data-name=rule]").getByText(name, { exact: true }) });
  const copied = {};
  for (const name of RULES) {
    await row(name).getByRole("button", { name: "Copy as YAML" }).click();
    await page.getByLabel(`rule ${name} as YAML`).waitFor();
    copied[name] = await page.evaluate(() => navigator.clipboard.readText());
  }
  assert.match(copied.hidden, /secret: true/);
  assert.match(copied.hidden, /# Left out: 2 overrides, since the keys are secret\./);
  assert.doesNotMatch(copied.hidden, /#[0-9a-f]{16}|overrides:/);
  assert.match(copied.deals, /count_rows:\n {6}in: shop\n/);
  assert.doesNotMatch(copied.deals, /^ {4}limits:/m);
  assert.match(copied.user, /# Left out, since it ends at 20\d\d-[^ ]+Z: ada: \["7\/min"\]/);
  const rules = Object.values(copied).map((text) => text.trimEnd().split("\n").slice(1).join("\n")).join("\n");
  const again = await Server.start(`${KEYS}store: memory\n${DATABASE}rules:\n${rules}\npolicies: { api: [hidden, user, pages, aligned, free], deals: [deals] }\n`);
  assert.deepEqual(await configured(again, false), await configured(server, true));
  assert.deepEqual(page.faults, []);
  await again.kill("SIGKILL");
  await server.kill("SIGKILL");
}
