// Text that strangers choose, and many of it.
import { ADMIN, KEYS, Server, go, openPage, overflows, signIn, until } from "./bench.mjs";

const CONFIG = `${KEYS}store: memory
rules: { user: { by: user, limits: 1/hour }, pair: { by: [user, agent], limits: 1/hour } }
policies: { api: [user, pair] }
`;

const HOSTILE = [
  "<img src=x onerror=alert(1)>",
  "\"><script>alert(1)</script>",
  "javascript:alert(1)",
  "\u202egnp.exe\u202c \u2066hidden\u2069 zero\u200bwidth",
  "line one\nline two\u0000\u001b[31mred",
  "x".repeat(1000),
  "%2e%2e%2f../..//etc/passwd?a=b#c",
  "𒐫𒈙⸻﷽".repeat(20),
];

export async function hostile_text_is_shown_as_text_in_every_view(browser, assert) {
  const server = await Server.start(CONFIG);
  for (const user of HOSTILE) {
    await server.check("api", { user, agent: user }, 3);
    const reason = user.replace(/[\u0000-\u001f]/g, " ").slice(0, 200);
    await server.call("POST", "api/v1/bans", { fields: { user: `banned ${user.slice(0, 200)}` }, reason });
    await server.call("PUT", `api/v1/counters/user/${encodeURIComponent(user)}`, { limits: ["2/hour"] });
  }
  const id = "<b>id</b>";
  await server.call("POST", "api/v1/check", { policy: "api", fields: { user: HOSTILE[0] } }, ADMIN, { "X-Correlation-ID": id });
  const page = await openPage(browser, server.url);
  await page.evaluate(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));
  });
  await signIn(page, ADMIN);
  await page.getByRole("heading", { name: "Now" }).waitFor();
  for (const width of [1200, 360]) {
    await page.setViewportSize({ width, height: 800 });
    for (const view of ["now", "decision", `decision/${encodeURIComponent(id)}`, "rules", "guards", "changes", ...HOSTILE.map((key) => `key/${encodeURIComponent(key)}`)]) {
      await go(page, view);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await until(`${view} is loaded`, async () => (await page.locator("main .text").count()) > 0);
      await page.waitForTimeout(60);
      assert.equal(await overflows(page), false, `${view.slice(0, 60)} at ${width}`);
      assert.equal(await page.locator("main img, main script, main b.injected").count(), 0);
    }
  }
  // The key is looked up exactly as it was written, whatever it contains.
  for (const key of HOSTILE) {
    await go(page, `key/${encodeURIComponent(key)}`);
    const card = page.getByRole("region", { name: "rule user" });
    await card.getByText(/\d of 2 used/).waitFor();
  }
  // Characters that hide or turn around text are written out.
  await go(page, `key/${encodeURIComponent(HOSTILE[3])}`);
  await page.getByRole("heading", { level: 1 }).getByText("\\u{202e}gnp.exe\\u{202c}").waitFor();
  assert.equal(await page.evaluate(() => /[\u202a-\u202e\u2066-\u2069\u200b]/.test(document.body.innerText)), false);
  assert.deepEqual(await page.evaluate(() => window.violations), []);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function ten_thousand_keys_are_shown_in_parts(browser, assert) {
  const server = await Server.start(CONFIG);
  for (let thousand = 0; thousand < 10; thousand++) {
    const bans = Array.from({ length: 1000 }, (_, at) => ({ target: `10.${thousand}.${at >> 8}.${at & 255}` }));
    assert.equal((await server.call("POST", "api/v1/bans", { bans })).status, 200);
  }
  for (let hundred = 0; hundred < 100; hundred++) {
    const attempts = Array.from({ length: 100 }, (_, at) => ({ policy: "api", fields: { user: `user-${hundred}-${at >> 1}` } }));
    await server.call("POST", "api/v1/check", { attempts });
  }
  const page = await openPage(browser, server.url);
  await signIn(page, ADMIN);
  await page.getByRole("heading", { name: "Now" }).waitFor();
  assert.ok((await page.getByRole("row").count()) < 50, "a ranking shows the first ten");
  await go(page, "guards");
  const lists = page.getByRole("region", { name: "lists" });
  await until("a part of the entries is shown", async () => (await lists.getByRole("row").count()) === 51);
  await lists.getByRole("button", { name: "More" }).click();
  await until("more of them are shown", async () => (await lists.getByRole("row").count()) === 201);
  await lists.getByLabel("Filter the lists").fill("10.7.3.231");
  await until("one is found", async () => (await lists.getByRole("row").count()) === 2);
  await go(page, "key/user-7-7");
  await page.getByText("1 of 1 used").first().waitFor();
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}
