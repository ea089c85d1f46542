// Every view in the light and in the dark: backgrounds, and the contrast of every text.
import { ADMIN, freePort, go } from "./bench.mjs";
import { looks } from "./contrast.mjs";
import { GUARDED, failLogins, mailConfig, opened } from "./steps.mjs";

/** Looks at each of these views in both modes. */
async function look(page, views, assert) {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    for (const [view, text] of views) {
      await go(page, view);
      await page.getByText(text).first().waitFor();
      const { back, pale } = await looks(page);
      assert.equal(back < 0.2, colorScheme === "dark", `the background of ${view}: ${back}`);
      assert.deepEqual(pale, [], `${view}, ${colorScheme}`);
    }
  }
  assert.deepEqual(page.faults, []);
}

export async function every_view_is_legible_in_the_light_and_in_the_dark(browser, assert) {
  const { server, page } = await opened(browser, GUARDED);
  await server.call("POST", "api/v1/bans", { target: "198.51.100.7", reason: "scraping" });
  await server.call("POST", "api/v1/bans", { target: "user=batch", kind: "allow" });
  await server.call("PUT", "api/v1/counters/user/bob", { limits: ["7/min"], for: "1d" });
  await server.check("api", { user: "ada", ip: "203.0.113.7" }, 40);
  await server.check("api", { user: "ada", ip: "198.51.100.7" }, 2);
  await server.check("login", { user: "ada", ip: "203.0.113.7" }, 4);
  await failLogins(server, "zoe");
  const { id } = (await server.call("GET", "api/v1/decisions?verdict=deny&rule=user")).body.decisions[0];
  await page.getByRole("link", { name: "ada" }).first().waitFor();
  await look(page, [
    ["now", "Most denied keys"],
    ["key", "Look up"],
    ["key/ada", "20 of 20 used"],
    ["key/bob", "override, for"],
    ["decision", "over the limit of rule user"],
    [`decision/${id}`, "retry after"],
    ["rules", "Copy as YAML"],
    ["guards", "scraping"],
    ["changes", "override.set"],
  ], assert);
  // A dialog, and what stands above every view while something is wrong.
  await go(page, "key/ada");
  await page.getByRole("button", { name: "Reset" }).first().click();
  assert.deepEqual((await looks(page)).pale, []);
  await page.keyboard.press("Escape");
  await server.kill("SIGKILL");
  await page.getByText("No connection to the server since").waitFor();
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    assert.deepEqual((await looks(page)).pale, [], colorScheme);
  }
}

export async function mail_and_signing_in_are_legible_in_the_light_and_in_the_dark(browser, assert) {
  const { server, page } = await opened(browser, mailConfig(await freePort()), ADMIN);
  const sent = await server.call("POST", "api/v1/messages", { from: "ada@acme.example", to: "bob@there.example", subject: "hi", text: "hello" });
  assert.equal(sent.status, 202);
  await go(page, "mail");
  await page.getByRole("link", { name: "bob@there.example" }).waitFor();
  await look(page, [["mail", "there.example"], [`mail/${sent.body.id}`, "What happened"]], assert);
  await page.getByRole("button", { name: "Sign out" }).click();
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await page.getByText("You are signed out.").waitFor();
    assert.deepEqual((await looks(page)).pale, [], colorScheme);
  }
  await server.kill("SIGKILL");
}
