// Every view and every button, by mouse and by keyboard.
import { createServer, request } from "node:http";
import { ADMIN, Server, freePort, go, openPage, overflows, signIn, until } from "./bench.mjs";
import { CONFIG, GUARDED, act, count, failLogins, opened, picture, pictures } from "./steps.mjs";

export async function now_shows_rates_live_and_the_most_denied_keys(browser, assert) {
  const { server, page } = await opened(browser);
  const seconds = pictures ? 40 : 3;
  for (let second = 0; second < seconds; second++) {
    const users = ["ada", "bob", "carol", "dan", "eve", "frank"];
    await Promise.all(users.map((user, at) => server.check("api", { user, ip: `203.0.113.${at}` }, 2 + ((second * (at + 2)) % 7))));
    await server.check("login", { user: "eve", ip: "203.0.113.9" }, 4);
    await page.waitForTimeout(900);
  }
  const login = page.getByRole("row").filter({ has: page.getByRole("button", { name: "login", exact: true }) });
  await login.waitFor();
  await until("the rate of denials is shown", async () => Number(await login.locator("td[data-name='denied/s']").innerText()) > 0);
  const denied = page.locator("section", { hasText: "Most denied keys" });
  await denied.getByRole("link", { name: "eve,203.0.113.9" }).waitFor();
  await until("both charts have areas", async () => (await page.locator(".plot .area.allow[d^=M]").count()) === 1 && (await page.locator(".plot .area.deny[d^=M]").count()) === 1);
  await picture(page, "console-now");
  // One policy alone, chosen in the table and in the list.
  await page.getByRole("button", { name: "login", exact: true }).click();
  assert.equal(await page.getByLabel("Policy").inputValue(), "login");
  await page.getByLabel("Policy").selectOption("");
  // What comes later appears without a reload.
  await server.check("api", { user: "gina", ip: "203.0.113.77" }, 60);
  await page.getByRole("link", { name: "gina" }).first().waitFor();
  // The cursor moves by keyboard.
  await page.locator(".plot").first().focus();
  await page.keyboard.press("ArrowLeft");
  assert.match(await page.locator("figcaption").first().innerText(), /\d\d:\d\d:\d\d/);
  // A click leads from a key to its limits.
  await denied.getByRole("link", { name: "gina", exact: true }).click();
  await page.getByRole("heading", { name: "Key gina" }).waitFor();
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function a_key_shows_every_limit_and_its_buttons_work(browser, assert) {
  const { server, page } = await opened(browser);
  const attempts = await server.check("api", { user: "ada", ip: "203.0.113.7" }, 25);
  assert.equal(attempts.at(-1).allowed, false);
  await page.keyboard.press("/");
  await page.keyboard.type("ada");
  await page.keyboard.press("Enter");
  const card = page.getByRole("region", { name: "rule user" });
  await card.getByText("20 of 20 used").waitFor();
  await card.getByText("20 of 500 used").waitFor();
  await page.getByText("over the limit of rule user").first().waitFor();
  await picture(page, "console-key");
  await act(page, card.getByRole("button", { name: "Reset" }));
  await page.getByText("The counts of user ada are reset.").waitFor();
  assert.equal((await count(server, "user", "ada")).limits[0].used, 0);
  await act(page, card.getByRole("button", { name: "Override limits" }), async (dialog) => {
    await dialog.getByLabel("Limits").fill("nonsense");
    await dialog.locator("button[type=submit]").click();
    await dialog.getByRole("alert").waitFor();
    await dialog.getByLabel("Limits").fill("7/min, 70/day");
    await dialog.getByLabel("For").selectOption("1d");
  });
  await card.getByText(/override, for (1d|23h 59m) more/).waitFor();
  const overridden = await count(server, "user", "ada");
  assert.deepEqual([overridden.overridden, overridden.limits.map((one) => one.limit)], [true, ["7/min", "70/day"]]);
  await act(page, card.getByRole("button", { name: "Remove override" }));
  await page.getByText("has the limits of its rule again").waitFor();
  assert.equal((await count(server, "user", "ada")).overridden, false);
  // Block and unblock.
  await act(page, card.getByRole("button", { name: "Block" }), async (dialog) => {
    await dialog.getByLabel("For").selectOption("1h");
    await dialog.getByLabel("Reason", { exact: true }).fill("scraping");
  });
  await page.getByRole("cell", { name: "user=ada" }).waitFor();
  const [blocked] = await server.check("api", { user: "ada", ip: "203.0.113.7" });
  assert.equal(blocked.status, 403);
  await act(page, page.getByRole("button", { name: "Unblock" }));
  await page.getByText("No entry of the blocklist").waitFor();
  assert.equal((await server.check("api", { user: "ada", ip: "203.0.113.7" }))[0].status, 200);
  // An address, and a key of two fields.
  await go(page, "key/203.0.113.7");
  await page.getByRole("region", { name: "rule address" }).getByText("only observed").waitFor();
  await act(page, page.getByRole("button", { name: "Block this address" }));
  await page.getByRole("cell", { name: "203.0.113.7", exact: true }).first().waitFor();
  await server.check("login", { user: "bob", ip: "203.0.113.8" }, 2);
  await go(page, "key/bob,203.0.113.8");
  await page.getByRole("region", { name: "rule login" }).getByText("2 of 5 used").waitFor();
  // A cancelled dialog changes nothing.
  await page.getByRole("button", { name: "Reset" }).first().click();
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.equal((await count(server, "login", "bob,203.0.113.8")).limits[0].used, 2);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function a_decision_is_found_by_the_id_of_its_refusal(browser, assert) {
  const { server, page } = await opened(browser);
  await server.check("login", { user: "eve", ip: "203.0.113.9" }, 5);
  const refused = await server.call("POST", "api/v1/check", { policy: "login", fields: { user: "eve", ip: "203.0.113.9" } });
  assert.equal(refused.status, 429);
  await go(page, "decision");
  await page.getByRole("link", { name: refused.body.correlationId }).waitFor();
  await page.getByLabel("Correlation id or token").fill(refused.body.correlationId);
  await page.getByRole("button", { name: "Find" }).click();
  const card = page.getByRole("region", { name: "decision" });
  await card.getByText("over the limit of rule login").waitFor();
  await card.getByText("TOO_MANY_LOGINS").waitFor();
  await picture(page, "console-decision");
  // What was read then, and what is read now.
  assert.equal(await card.getByText("5 of 5 used").count(), 2);
  await server.call("DELETE", "api/v1/counters/login/eve,203.0.113.9");
  await card.getByText("0 of 5 used").waitFor();
  assert.equal(await card.getByText("5 of 5 used").count(), 1);
  // The same by the token alone, which needs no journal; and a pasted link.
  const { token } = (await server.call("GET", `api/v1/decisions?id=${refused.body.correlationId}`)).body.decisions[0];
  await page.getByLabel("Correlation id or token").fill(`https://limits.example/#/decision/${token}`);
  await page.getByRole("button", { name: "Find" }).click();
  await page.waitForURL(`**/#/decision/${token}`);
  await card.getByText("over the limit of rule login").waitFor();
  await go(page, `decision/${"A".repeat(200)}`);
  await page.getByText("this is not the token of a decision").waitFor();
  await go(page, `decision/${token}`);
  await card.getByRole("link", { name: "eve,203.0.113.9" }).click();
  await page.getByRole("region", { name: "rule login" }).getByText("0 of 5 used").waitFor();
  await go(page, "decision/unknown");
  await page.getByText("No decision with this id").waitFor();
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function the_link_in_a_refusal_leads_to_its_reason(browser, assert) {
  const port = await freePort();
  const server = new Server(`${CONFIG}denials: { link: "http://127.0.0.1:${port}/#/decision/{token}" }\n`, port);
  await server.run();
  await server.check("login", { user: "eve", ip: "203.0.113.9" }, 5);
  const refused = await server.call("POST", "api/v1/check", { policy: "login", fields: { user: "eve", ip: "203.0.113.9" } });
  const page = await openPage(browser, refused.body.decision_url);
  await signIn(page, ADMIN);
  const card = page.getByRole("region", { name: "decision" });
  await card.getByText("over the limit of rule login").waitFor();
  await card.getByText("retry after").waitFor();
  assert.equal(await card.getByText("5 of 5 used").count(), 2);
  await page.setViewportSize({ width: 1000, height: 420 });
  await picture(page, "linked-decision");
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function rules_show_pressure_and_copy_as_valid_yaml(browser, assert) {
  const { server, page } = await opened(browser);
  await server.check("login", { user: "eve", ip: "203.0.113.9" }, 10);
  await server.check("api", { user: "batch", ip: "203.0.113.9" }, 40);
  await go(page, "rules");
  const row = (name) => page.getByRole("row").filter({ has: page.locator("td[data-name=rule]").getByText(name, { exact: true }) });
  await row("login").locator("td[data-name=pressure]", { hasText: "50 %" }).waitFor();
  await row("address").locator("td[data-name=observed]", { hasText: "10" }).waitFor();
  assert.equal(await row("address").locator("td[data-name=mode]").innerText(), "observed");
  assert.match(await row("login").locator("td[data-name='last exceeded']").innerText(), /ago|now/);
  await picture(page, "console-rules");
  const copied = ["store: memory"];
  for (const name of ["user", "address", "login", "everybody", "signin"]) {
    await row(name).getByRole("button", { name: "Copy as YAML" }).click();
    await page.getByLabel(`rule ${name} as YAML`).waitFor();
    const text = await page.evaluate(() => navigator.clipboard.readText());
    assert.equal(text.trim(), (await page.getByLabel(`rule ${name} as YAML`).innerText()).trim());
    copied.push(copied.length === 1 ? text.trimEnd() : text.split("\n").slice(1).join("\n").trimEnd());
  }
  const { code, said } = await (async () => {
    const other = new Server(`${copied.join("\n")}\npolicies: { all: [user, address, login, everybody, signin] }\n`, 0);
    return other.command("check-config", "tollgate.yaml");
  })();
  assert.equal(code, 0, said);
  assert.match(said, /20\/min|2000/);
  await page.getByLabel("Filter rules").fill("log");
  assert.equal(await page.getByRole("button", { name: "Copy as YAML" }).count(), 1);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function guards_show_locks_and_lists_can_be_changed(browser, assert) {
  const { server, page } = await opened(browser, GUARDED);
  await failLogins(server, "zoe");
  const begin = async () => (await server.call("POST", "api/v1/guards/signin/begin", { fields: { account: "zoe" } })).status;
  assert.equal(await begin(), 429);
  await go(page, "guards");
  const locks = page.getByRole("region", { name: "locks of signin" });
  await locks.getByRole("link", { name: "zoe" }).waitFor();
  await act(page, page.getByRole("button", { name: "Add an entry" }), async (dialog) => {
    await dialog.getByLabel("Target").fill("198.51.100.0/24");
    await dialog.getByLabel("Reason", { exact: true }).fill("scraping");
    await dialog.getByLabel("For").selectOption("7d");
  });
  await act(page, page.getByRole("button", { name: "Add an entry" }), async (dialog) => {
    await dialog.getByLabel("Target").fill("user=batch");
    await dialog.getByLabel("List").selectOption("allow");
    await dialog.getByLabel("For").selectOption("");
  });
  const lists = page.getByRole("region", { name: "lists" });
  await lists.getByRole("cell", { name: "198.51.100.0/24" }).waitFor();
  await lists.getByRole("cell", { name: "user=batch" }).waitFor();
  // A secret key is found by whom it is about.
  const standing = page.getByRole("region", { name: "a user at signin" });
  await standing.getByLabel("signin account").fill("zoe");
  await standing.getByRole("button", { name: "Show failures" }).click();
  await standing.getByText("locked, in").waitFor();
  await act(page, standing.getByRole("button", { name: "Clear the failures" }));
  await standing.getByText("The failures are forgotten.").waitFor();
  assert.equal(await begin(), 200);
  await locks.getByText("No key is locked.").waitFor();
  await failLogins(server, "yan");
  await act(page, locks.getByRole("button", { name: "Unlock" }));
  await page.getByText("yan is unlocked.").waitFor();
  await lists.getByLabel("Kind").selectOption("allow");
  await lists.getByRole("cell", { name: "198.51.100.0/24" }).waitFor({ state: "detached" });
  await lists.getByLabel("Filter the lists").fill("nothing-like-this");
  await lists.getByText("No entries.").waitFor();
  await lists.getByLabel("Filter the lists").fill("");
  await act(page, lists.getByRole("button", { name: "Remove" }));
  await page.getByText("user=batch is removed from the list.").waitFor();
  assert.deepEqual((await server.call("GET", "api/v1/bans")).body.bans.map((one) => one.target), ["198.51.100.0/24"]);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function changes_name_what_was_changed_and_by_which_key(browser, assert) {
  const { server, page } = await opened(browser);
  await server.call("PUT", "api/v1/counters/user/ada", { limits: ["200/min"] });
  await server.call("POST", "api/v1/bans", { target: "198.51.100.7", reason: "scraping" });
  await server.call("DELETE", "api/v1/counters/user/ada/override");
  await go(page, "changes");
  const row = page.getByRole("row").filter({ hasText: "override.remove" });
  await row.waitFor();
  assert.match(await row.innerText(), /ops.*user\/ada.*200\/min/s);
  assert.equal(await page.getByRole("row").count(), 4);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function everything_fits_on_a_phone_and_works_by_keyboard(browser, assert) {
  const { server, page } = await opened(browser);
  await server.check("api", { user: "a-user-with-a-rather-long-name@some-domain.example", ip: "203.0.113.7" }, 25);
  await page.setViewportSize({ width: 360, height: 740 });
  for (const view of ["now", "key", "key/a-user-with-a-rather-long-name@some-domain.example", "decision", "rules", "guards", "changes"]) {
    await go(page, view);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await page.waitForTimeout(150);
    assert.equal(await overflows(page), false, `${view} is wider than the phone`);
  }
  await go(page, "key/a-user-with-a-rather-long-name@some-domain.example");
  await page.getByText("20 of 20 used").waitFor();
  await page.setViewportSize({ width: 1200, height: 860 });
  await page.locator("body").click({ position: { x: 5, y: 500 } });
  await page.keyboard.press("4");
  await page.getByRole("heading", { name: "Rules" }).waitFor();
  await page.keyboard.press("1");
  await page.getByRole("heading", { name: "Now" }).waitFor();
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function it_works_below_the_base_path_of_a_proxy(browser, assert) {
  const server = await Server.start(CONFIG);
  const port = await freePort();
  const proxy = createServer((incoming, outgoing) => {
    const prefix = "/ops/tollgate";
    if (!incoming.url.startsWith(`${prefix}/`)) return outgoing.writeHead(404).end();
    const { method, headers } = incoming;
    const asked = request({ host: "127.0.0.1", port: server.port, method, path: incoming.url.slice(prefix.length), headers }, (answer) => {
      outgoing.writeHead(answer.statusCode, answer.headers);
      answer.pipe(outgoing);
    });
    outgoing.on("close", () => asked.destroy());
    asked.on("error", () => outgoing.destroy());
    incoming.pipe(asked);
  });
  await new Promise((done) => proxy.listen(port, "127.0.0.1", done));
  try {
    const page = await openPage(browser, `http://127.0.0.1:${port}/ops/tollgate/`);
    await signIn(page, ADMIN);
    await page.getByText("live", { exact: true }).waitFor();
    assert.equal((await browser.cookies())[0].path, "/ops/tollgate/api/v1");
    await server.check("api", { user: "ada", ip: "203.0.113.7" }, 3);
    await go(page, "key/ada");
    const card = page.getByRole("region", { name: "rule user" });
    await card.getByText("3 of 20 used").waitFor();
    await act(page, card.getByRole("button", { name: "Reset" }));
    await page.getByText("are reset").waitFor();
    assert.deepEqual(page.faults, []);
    await page.close();
  } finally {
    proxy.closeAllConnections();
    proxy.close();
    await server.kill("SIGKILL");
  }
}

export async function what_is_allowed_observed_and_refused_adds_up_to_the_attempts(browser, assert) {
  const { server, page } = await opened(browser);
  // The address is over its observed limit after 30 attempts, and each user within their own.
  await Promise.all(Array.from({ length: 60 }, (_, at) => server.check("api", { user: `user-${at}`, ip: "203.0.113.7" }, 3)));
  await server.check("api", { user: "ada", ip: "203.0.113.8" }, 80);
  const row = page.getByRole("row").filter({ has: page.getByRole("button", { name: "api", exact: true }) });
  const rate = async (name) => Number(await row.locator(`td[data-name='${name}']`).innerText());
  await until("the rate of observed attempts is shown", async () => (await row.count()) === 1 && (await rate("of these observed/s")) > 1);
  await until("the parts add up", async () => {
    const [attempts, ...parts] = await Promise.all(["attempts/s", "allowed/s", "denied/s", "deferred/s", "told to wait/s", "blocked/s"].map(rate));
    return attempts > 2 && Math.abs(parts.reduce((sum, one) => sum + one, 0) - attempts) <= 0.15 && (await rate("of these observed/s")) <= parts[0];
  });
  const legend = (title) => page.locator("figcaption", { hasText: title }).locator(".legend").allInnerTexts();
  const [passed, refused] = [await page.locator("figcaption").first().innerText(), await page.locator("figcaption").nth(1).innerText()];
  assert.match(passed, /within the limits .*over an observed limit/s);
  assert.match(refused, /Not allowed/);
  assert.doesNotMatch(refused, /observed/);
  assert.equal((await legend("Not allowed")).length, 4);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function rules_fit_a_phone_and_words_break_between_their_parts(browser, assert) {
  const long = CONFIG.replace("rules:", "rules:\n  submissions_of_recipients_by_domain: { by: [user, ip], limits: [1000000/day sliding by 5m, 20/min, 500/hour burst 20] }").replace("api: [", "api: [submissions_of_recipients_by_domain, ");
  const { server, page } = await opened(browser, long);
  await page.setViewportSize({ width: 360, height: 740 });
  await go(page, "rules");
  await page.getByText("submissions_of_recipients_by_domain").waitFor();
  assert.equal(await overflows(page), false);
  const outside = await page.locator(".stacks td, .stacks button").evaluateAll((cells) => cells.filter((cell) => cell.getBoundingClientRect().right > window.innerWidth).length);
  assert.equal(outside, 0, "every cell and button is on the screen");
  assert.equal(await page.locator(".stacks").evaluate((table) => table.scrollWidth <= table.clientWidth), true);
  for (const width of [360, 700, 900, 1200]) {
    await page.setViewportSize({ width, height: 740 });
    const broken = await page.locator("main .text").evaluateAll((texts) => {
      const lines = (piece) => {
        const range = document.createRange();
        range.selectNodeContents(piece);
        return new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size;
      };
      const pieces = texts.flatMap((text) => [...text.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE));
      return pieces.filter((piece) => lines(piece) > 1 && !/\s/.test(piece.textContent.trim())).map((piece) => piece.textContent);
    });
    assert.deepEqual(broken, [], `at ${width}`);
  }
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function a_cost_above_the_limit_is_called_that(browser, assert) {
  const { server, page } = await opened(browser, `denials: { token: true }\n${CONFIG}`);
  const { body } = await server.call("POST", "api/v1/check", { policy: "api", fields: { user: "max", ip: "203.0.113.7" }, cost: 21 });
  await go(page, `decision/${body.correlationId}`);
  await page.getByText("the cost is larger than the limit of rule user").waitFor();
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}
