// Keys that are secret: the page acts on the key that the operator typed, and never on its pseudonym.
import { KEYS, go } from "./bench.mjs";
import { act, count, opened } from "./steps.mjs";

const CONFIG = `${KEYS}store: memory
rules: { token: { by: token, limits: 5/min, secret: true } }
policies: { api: [token] }
`;
const KEY = "hunter2/secret token";

export async function the_buttons_act_on_a_secret_key_and_not_on_its_pseudonym(browser, assert) {
  const { server, page } = await opened(browser, CONFIG);
  await server.check("api", { token: KEY }, 6);
  await go(page, `key/${encodeURIComponent(KEY)}`);
  const card = page.getByRole("region", { name: "rule token" });
  await card.getByText("5 of 5 used").waitFor();
  await card.getByText("keys are secret").waitFor();
  assert.match(await card.getByRole("heading").innerText(), /^token #[0-9a-f]{16}$/);
  assert.equal(await card.getByRole("button", { name: "Block" }).count(), 0, "lists are not secret");
  await act(page, card.getByRole("button", { name: "Reset" }));
  await page.getByText("are reset").waitFor();
  await card.getByText("0 of 5 used").waitFor();
  assert.equal((await count(server, "token", KEY)).limits[0].used, 0);
  await act(page, card.getByRole("button", { name: "Override limits" }), async (dialog) => {
    await dialog.getByLabel("Limits").fill("70/min");
    await dialog.getByLabel("For").selectOption("1h");
  });
  await card.getByText("0 of 70 used").waitFor();
  assert.equal((await server.check("api", { token: KEY }, 10)).every((one) => one.allowed), true);
  await act(page, card.getByRole("button", { name: "Remove override" }));
  await page.getByText("has the limits of its rule again").waitFor();
  assert.equal((await count(server, "token", KEY)).overridden, false);
  const changes = (await server.call("GET", "api/v1/changes")).body.changes;
  assert.deepEqual(changes.map((one) => one.action), ["override.remove", "override.set", "counts.reset"]);
  assert.ok(changes.every((one) => /^token\/#[0-9a-f]{16}$/.test(one.what)), JSON.stringify(changes));
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function the_link_of_a_pseudonym_says_what_it_is_and_offers_nothing_to_reset(browser, assert) {
  const { server, page } = await opened(browser, CONFIG);
  await server.check("api", { token: KEY }, 8);
  const denied = page.locator("section", { hasText: "Most denied keys" });
  await denied.getByRole("link", { name: /^#[0-9a-f]{16}$/ }).click();
  await page.getByText("This is the pseudonym of a secret key.").waitFor();
  await page.getByText("over the limit of rule token").first().waitFor();
  assert.equal(await page.getByRole("button", { name: "Reset" }).count(), 0);
  assert.equal(await page.getByText("0 of 5 used").count(), 0);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}
