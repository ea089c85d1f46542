// Signing in and out, roles, and sessions that end.
import { ADMIN, CHECKER, KEYS, READER, Server, go, openPage, signIn } from "./bench.mjs";

const CONFIG = `${KEYS}store: memory
rules: { user: { by: user, limits: 3/min } }
policies: { api: [user] }
`;

export async function without_keys_the_page_opens_at_once_on_loopback(browser, assert) {
  const server = await Server.start("store: memory\nrules: { user: { by: user, limits: 3/min } }\npolicies: { api: [user] }\n");
  const page = await openPage(browser, server.url);
  await page.getByRole("heading", { name: "Now" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Sign out" }).count(), 0);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function only_keys_that_may_read_sign_in_and_the_cookie_is_kept_from_scripts(browser, assert) {
  const server = await Server.start(CONFIG);
  const page = await openPage(browser, server.url);
  for (const wrong of ["wrong-token-0123456789", "“quoted-token-0123456789”"]) {
    await signIn(page, wrong);
    await page.getByText("No access key of this server has this token.").waitFor();
    await page.reload();
  }
  await signIn(page, CHECKER);
  await page.getByText("This key may only ask for decisions. Sign in with a key with the role read or admin.").waitFor();
  await signIn(page, READER);
  await page.getByRole("heading", { name: "Now" }).waitFor();
  await page.getByText("watcher").waitFor();
  const [cookie] = await browser.cookies();
  assert.deepEqual([cookie.name, cookie.httpOnly, cookie.sameSite, cookie.path, cookie.secure], ["tollgate_session", true, "Strict", "/api/v1", false]);
  assert.equal(await page.evaluate(() => document.cookie), "");
  // The page still knows who it is after a reload.
  await page.reload();
  await page.getByText("watcher").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByText("You are signed out.").waitFor();
  assert.deepEqual(await browser.cookies(), []);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function a_reader_sees_everything_and_changes_nothing(browser, assert) {
  const server = await Server.start(CONFIG);
  await server.check("api", { user: "ada" }, 5);
  const page = await openPage(browser, server.url);
  await signIn(page, READER);
  await page.getByRole("heading", { name: "Now" }).waitFor();
  await go(page, "key/ada");
  const reset = page.getByRole("button", { name: "Reset" });
  await reset.waitFor();
  assert.equal(await reset.isDisabled(), true);
  assert.equal(await page.getByRole("button", { name: "Override limits" }).isDisabled(), true);
  // The server refuses too, whatever the page does.
  const status = await page.evaluate(() => fetch("api/v1/counters/user/ada", { method: "DELETE" }).then((one) => one.status));
  assert.equal(status, 403);
  await server.kill("SIGKILL");
}

export async function a_key_with_a_tenant_gets_the_views_that_it_reaches(browser, assert) {
  const tenant = "tenant-token-0123456789";
  const key = (await import("node:crypto")).createHash("sha256").update(tenant).digest("hex");
  const config = `${KEYS}  - { name: acme, role: admin, tenant: acme, token_sha256: ${key} }
store: memory
rules: { account: { by: [tenant, account], limits: 3/min } }
policies: { api: [account] }
`;
  const server = await Server.start(config);
  await server.check("api", { tenant: "acme", account: "main" }, 5);
  const page = await openPage(browser, server.url);
  await signIn(page, tenant);
  await page.getByText("acme", { exact: true }).first().waitFor();
  assert.deepEqual(await page.locator("nav a").allInnerTexts(), ["Key", "Decision"]);
  await go(page, "key/acme,main");
  const reset = page.getByRole("button", { name: "Reset" });
  await reset.waitFor();
  assert.deepEqual([await reset.isDisabled(), await reset.getAttribute("title")], [true, "This needs a key without a tenant."]);
  assert.equal(await page.getByText("Blocklist and allowlist").count(), 0);
  await page.getByText("denied").or(page.getByText("deny")).first().waitFor();
  // A link to another view leads to the first one, and nothing claims that the server is gone.
  await go(page, "changes");
  await page.getByRole("heading", { name: "Key" }).waitFor();
  assert.equal(await page.getByText("No connection").count(), 0);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function a_session_ends_with_its_key_and_the_page_says_so(browser, assert) {
  const server = await Server.start(CONFIG);
  const page = await openPage(browser, server.url);
  await signIn(page, ADMIN);
  await page.getByText("live", { exact: true }).waitFor();
  server.configure(CONFIG.replace("ADMIN_TOKEN", "READER_TOKEN").replace(/.*watcher.*\n/, ""));
  await server.call("POST", "api/v1/reload");
  await page.getByText("the session has ended: sign in again").waitFor();
  await signIn(page, READER);
  await page.getByText("ops").waitFor();
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function other_sites_cannot_use_a_session(browser, assert) {
  const server = await Server.start(CONFIG);
  const page = await openPage(browser, server.url);
  await signIn(page, ADMIN);
  await page.getByRole("heading", { name: "Now" }).waitFor();
  const [{ value }] = await browser.cookies();
  const cookie = { Cookie: `tollgate_session=${value}` };
  const send = async (method, headers) => (await fetch(`${server.url}api/v1/counters/user/ada`, { method, headers: { ...cookie, ...headers } })).status;
  assert.equal(await send("DELETE", { Origin: server.url.slice(0, -1) }), 200);
  assert.equal(await send("DELETE", { Origin: "https://evil.example" }), 403);
  assert.equal(await send("DELETE", {}), 403, "a change without an origin");
  // A page of another origin cannot send the cookie at all.
  const other = await Server.start("store: memory\nrules: { user: { by: user, limits: 3/min } }\npolicies: { api: [user] }\n");
  const attacker = await browser.newPage();
  await attacker.goto(other.url.replace("127.0.0.1", "localhost"));
  const answered = await attacker.evaluate((url) => fetch(url, { method: "POST", mode: "no-cors", credentials: "include" }).then(() => "sent", () => "blocked"), `${server.url}api/v1/reload`);
  assert.equal(answered, "blocked", "the attacker's page has the strict policy of a console");
  const changes = await server.call("GET", "api/v1/changes");
  assert.deepEqual(changes.body.changes.map((one) => one.action), ["counts.reset"]);
  await server.kill("SIGKILL");
  await other.kill("SIGKILL");
}
