// Finding a decision by whatever an operator pastes: ids of any form and length, tokens, links.
import { ADMIN, KEYS, go } from "./bench.mjs";
import { opened } from "./steps.mjs";

const refuse = (server, id) => server.call("POST", "api/v1/check", { policy: "login", fields: { user: "eve", ip: "203.0.113.9" } }, ADMIN, { "X-Correlation-ID": id });

async function find(page, text) {
  await go(page, "decision");
  await page.getByLabel("Correlation id or token").fill(text);
  await page.getByRole("button", { name: "Find" }).click();
}

export async function an_id_is_found_however_long_it_is_and_whatever_it_has(browser, assert) {
  const { server, page } = await opened(browser);
  await server.check("login", { user: "eve", ip: "203.0.113.9" }, 5);
  const card = page.getByRole("region", { name: "decision" });
  for (const id of ["a".repeat(100), "b-_".repeat(42), "c".repeat(128), "100%", "%41", "a/b?c#d"]) {
    assert.equal((await refuse(server, id)).status, 429);
    await find(page, id);
    await card.getByText("over the limit of rule login").waitFor();
    assert.ok((await card.innerText()).includes(id), id);
  }
  for (const unknown of ["50%", "d".repeat(128), "ä"]) {
    await find(page, unknown);
    await page.getByText("No decision with this id").waitFor();
  }
  await find(page, "e".repeat(129));
  await page.getByText("this is not the token of a decision").waitFor();
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function a_short_token_is_found_too(browser, assert) {
  const { server, page } = await opened(browser, `${KEYS}store: memory\nrules: { r: { by: u, limits: 1/s } }\npolicies: { p: [r] }\n`);
  // A blocked attempt and short names: hardly anything for a token to say.
  await server.call("POST", "api/v1/bans", { target: "u=x" });
  await server.call("POST", "api/v1/check", { policy: "p", fields: { u: "x" } }, ADMIN, { "X-Correlation-ID": "i" });
  const { token } = (await server.call("GET", "api/v1/decisions")).body.decisions[0];
  assert.ok(token.length <= 128, `a token of ${token.length} characters is as short as an id may be`);
  for (const text of [token, `https://limits.example/#/decision/${token}`, `https://ops.example/decisions/${token}`]) {
    await find(page, text);
    await page.getByRole("region", { name: "decision" }).getByText("on the blocklist: u=x").waitFor();
  }
  const { code, said } = await server.command("decisions", "--id", token);
  assert.deepEqual([code, said.includes("u=x")], [0, true], said);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}
