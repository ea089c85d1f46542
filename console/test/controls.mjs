// Controls that the stories of the other tests do not meet.
import { READER, go, openPage, signIn, until } from "./bench.mjs";
import { GUARDED, act, count, failLogins, opened } from "./steps.mjs";

export async function a_key_is_looked_up_in_its_view(browser, assert) {
  const { server, page } = await opened(browser);
  await server.check("login", { user: "bob", ip: "203.0.113.8" }, 2);
  await page.getByRole("link", { name: "Key", exact: true }).click();
  await page.getByLabel("Key", { exact: true }).fill("  bob,203.0.113.8 ");
  await page.getByRole("button", { name: "Look up" }).click();
  await page.getByRole("region", { name: "rule login" }).getByText("2 of 5 used").waitFor();
  // A percent sign is part of a key.
  await go(page, "key");
  await page.getByLabel("Key", { exact: true }).fill("100%");
  await page.getByRole("button", { name: "Look up" }).click();
  await page.getByRole("heading", { name: "Key 100%" }).waitFor();
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function more_locks_are_shown_on_demand(browser, assert) {
  const { server, page } = await opened(browser, GUARDED);
  await Promise.all(Array.from({ length: 60 }, (_, at) => failLogins(server, `user-${at}`)));
  await go(page, "guards");
  const locks = page.getByRole("region", { name: "locks of signin" });
  await until("a part of the locks is shown", async () => (await locks.getByRole("row").count()) === 51);
  await locks.getByRole("button", { name: "More" }).click();
  await until("all locks are shown", async () => (await locks.getByRole("row").count()) === 61);
  assert.equal(await locks.getByRole("button", { name: "More" }).count(), 0);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function a_reason_is_shown_to_the_client_only_if_it_is_public(browser, assert) {
  const { server, page } = await opened(browser);
  const block = (fill) => act(page, page.getByRole("button", { name: "Block this address" }), fill);
  await go(page, "key/203.0.113.7");
  await block((dialog) => dialog.getByLabel("Reason", { exact: true }).fill("between us"));
  await page.getByRole("cell", { name: "between us" }).waitFor();
  const told = async (ip) => JSON.stringify(await server.check("api", { user: "ada", ip }));
  assert.doesNotMatch(await told("203.0.113.7"), /between us/);
  await go(page, "key/203.0.113.8");
  await block(async (dialog) => {
    await dialog.getByLabel("Reason", { exact: true }).fill("too many requests");
    await dialog.getByLabel("Show the reason to the client").check();
  });
  await page.getByRole("cell", { name: "too many requests" }).waitFor();
  assert.match(await told("203.0.113.8"), /too many requests/);
  // The same in the dialog of the lists.
  await go(page, "guards");
  await act(page, page.getByRole("button", { name: "Add an entry" }), async (dialog) => {
    await dialog.getByLabel("Target").fill("203.0.113.9");
    await dialog.getByLabel("Reason", { exact: true }).fill("known to all");
    await dialog.getByLabel("Show the reason to the client").check();
  });
  await page.getByRole("cell", { name: "known to all" }).waitFor();
  assert.match(await told("203.0.113.9"), /known to all/);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function a_cancelled_dialog_changes_nothing(browser, assert) {
  const { server, page } = await opened(browser, GUARDED);
  await server.check("api", { user: "ada", ip: "203.0.113.7" }, 5);
  await server.call("PUT", "api/v1/counters/user/ada", { limits: ["9/min"] });
  await server.call("POST", "api/v1/bans", { target: "user=ada", kind: "allow" });
  await failLogins(server, "zoe");
  const before = (await server.call("GET", "api/v1/changes")).body.changes.length;
  const cancel = async (button) => {
    await button.click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Cancel", exact: true }).click();
    await dialog.waitFor({ state: "detached" });
  };
  await go(page, "key/ada");
  const card = page.getByRole("region", { name: "rule user" });
  for (const name of ["Reset", "Override limits", "Remove override", "Block"]) await cancel(card.getByRole("button", { name }));
  await cancel(page.getByRole("button", { name: "Remove", exact: true }));
  await go(page, "guards");
  await cancel(page.getByRole("button", { name: "Unlock" }));
  await cancel(page.getByRole("button", { name: "Add an entry" }));
  assert.equal((await server.call("GET", "api/v1/changes")).body.changes.length, before);
  assert.deepEqual([(await count(server, "user", "ada")).limits[0].used, (await count(server, "user", "ada")).overridden], [5, true]);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function the_skip_link_leads_past_the_bar(browser, assert) {
  const { server, page } = await opened(browser);
  await page.locator("body").click({ position: { x: 5, y: 500 } });
  await page.evaluate(() => document.activeElement?.blur());
  const skip = page.getByRole("link", { name: "Skip to the view" });
  const left = async () => (await skip.boundingBox()).x;
  assert.ok((await left()) < 0, "it is out of sight");
  await skip.focus();
  assert.ok((await left()) >= 0, "it is seen while it has the focus");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "view");
  assert.equal(await page.evaluate(() => location.hash.includes("view")), false, "the view is still the same");
  // It is the first stop of the keyboard.
  await page.reload();
  await page.getByRole("heading", { name: "Now" }).waitFor();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement?.textContent.trim()), "Skip to the view");
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function every_button_that_changes_something_is_off_for_a_reader(browser, assert) {
  const { server, page } = await opened(browser, GUARDED);
  await server.check("api", { user: "ada", ip: "203.0.113.7" }, 5);
  await server.call("PUT", "api/v1/counters/user/ada", { limits: ["9/min"] });
  await server.call("POST", "api/v1/bans", { target: "203.0.113.7" });
  await server.call("POST", "api/v1/bans", { target: "user=ada", kind: "allow" });
  await failLogins(server, "zoe");
  const reader = await openPage(browser, server.url);
  await signIn(reader, READER);
  await reader.getByRole("heading", { name: "Now" }).waitFor();
  const off = async (within, ...names) => {
    for (const name of names) {
      const button = within.getByRole("button", { name, exact: name !== "Override limits" }).first();
      await button.waitFor();
      assert.deepEqual([await button.isDisabled(), await button.getAttribute("title")], [true, "This needs a key with the role admin."], name);
      const around = button.locator("xpath=..");
      assert.equal(await around.getByText("needs the role admin").count(), 1, `${name} has its reason beside it`);
    }
  };
  await go(reader, "key/ada");
  await off(reader.getByRole("region", { name: "rule user" }), "Reset", "Override limits", "Remove override", "Block");
  await off(reader, "Remove");
  await go(reader, "key/203.0.113.7");
  await off(reader, "Block this address", "Unblock");
  await go(reader, "guards");
  await off(reader, "Unlock", "Add an entry", "Unblock", "Remove");
  const standing = reader.getByRole("region", { name: "a user at signin" });
  await standing.getByLabel("signin account").fill("zoe");
  await standing.getByRole("button", { name: "Show failures" }).click();
  await standing.getByText("locked, in").waitFor();
  await off(standing, "Clear the failures");
  // What only looks is on.
  await go(reader, "rules");
  assert.equal(await reader.getByRole("button", { name: "Copy as YAML" }).first().isEnabled(), true);
  assert.deepEqual([...page.faults, ...reader.faults], []);
  await server.kill("SIGKILL");
}
