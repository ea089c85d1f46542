// Outages, dead nodes, and too many pages.
import { get } from "node:http";
import { ADMIN, KEYS, Redis, Server, go, openPage, signIn, until } from "./bench.mjs";

const RULES = `rules: { user: { by: user, limits: 5/min, on_outage: local 50% } }
policies: { api: [user] }
`;

export async function an_outage_of_the_shared_store_is_shown_while_it_lasts(browser, assert) {
  const redis = await Redis.start();
  const server = await Server.start(`${KEYS}store: { redis: "redis://127.0.0.1:${redis.port}", command_timeout: 500ms, connect_timeout: 500ms }\n${RULES}`);
  const page = await openPage(browser, server.url);
  await signIn(page, ADMIN);
  await page.getByText("live", { exact: true }).waitFor();
  await redis.stop();
  await page.getByText("The shared store cannot be used.").waitFor();
  await page.getByText("degraded", { exact: true }).waitFor();
  await server.check("api", { user: "ada" }, 3);
  // The views say so too, instead of showing nothing.
  await go(page, "key/ada");
  await page.getByRole("alert").nth(1).waitFor();
  await page.getByText("without the store").first().waitFor();
  await go(page, "now");
  await redis.run();
  await page.getByText("The shared store cannot be used.").waitFor({ state: "detached" });
  await page.getByText("live", { exact: true }).waitFor();
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
  await redis.stop();
}

export async function a_session_outlives_a_node_that_shares_its_store(browser, assert) {
  const redis = await Redis.start();
  const config = `${KEYS}store: { redis: "redis://127.0.0.1:${redis.port}" }\n${RULES}`;
  const server = await Server.start(config);
  const page = await openPage(browser, server.url);
  await signIn(page, ADMIN);
  await page.getByText("live", { exact: true }).waitFor();
  await server.check("api", { user: "ada" }, 3);
  await server.kill("SIGKILL");
  await page.getByText("No connection to the server since").waitFor();
  await page.getByText("no connection", { exact: true }).waitFor();
  // Another node takes its place, as behind a load balancer.
  await server.run();
  await page.getByText("No connection to the server since").waitFor({ state: "detached" });
  await page.getByText("live", { exact: true }).waitFor();
  await go(page, "key/ada");
  await page.getByText("3 of 5 used").waitFor();
  assert.deepEqual(page.faults, []);
  // A server that ends tells its pages, and does not wait for them.
  const ending = performance.now();
  await server.kill("SIGTERM");
  assert.ok(performance.now() - ending < 5000);
  assert.match(server.said(), /"?ended"?/);
  await redis.stop();
}

export async function a_page_too_many_asks_instead_of_following(browser, assert) {
  const server = await Server.start(`${KEYS}store: memory\n${RULES}`);
  const open = () => new Promise((done, fail) => {
    const asked = get({ host: "127.0.0.1", port: server.port, path: "/api/v1/status/stream", headers: { Authorization: `Bearer ${ADMIN}` }, agent: false }, (answer) => {
      answer.resume();
      done({ status: answer.statusCode, close: () => asked.destroy() });
    });
    asked.once("error", fail);
  });
  const streams = await Promise.all(Array.from({ length: 256 }, open));
  assert.deepEqual(new Set(streams.map((one) => one.status)), new Set([200]));
  const refused = await server.call("GET", "api/v1/status/stream");
  assert.deepEqual([refused.status, refused.body.detail.includes("256 pages follow the status already")], [503, true]);
  const page = await openPage(browser, server.url);
  const histories = [];
  page.on("request", (request) => request.url().includes("status/history") && histories.push(new URL(request.url()).search));
  await signIn(page, ADMIN);
  await page.getByText("up", { exact: true }).waitFor();
  await server.check("api", { user: "ada" }, 9);
  await page.getByRole("link", { name: "ada" }).first().waitFor();
  // It asks for all seconds once, and then only for those that it missed.
  await until("it has asked three times", () => histories.length >= 3);
  assert.equal(histories[0], "");
  for (const search of histories.slice(1)) {
    const seconds = Number(new URLSearchParams(search).get("seconds"));
    assert.ok(seconds >= 1 && seconds < 30, `it asks for ${search}`);
  }
  await until("the chart has them", async () => (await page.locator(".plot .area.deny[d^=M]").count()) === 1);
  const history = await page.locator("figcaption", { hasText: "Not allowed" }).innerText();
  assert.match(history, /denied/);
  for (const stream of streams) stream.close();
  await until("there is room again", async () => (await server.call("GET", "api/v1/status")).body.pages === 0);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}

export async function a_page_that_is_hidden_and_shown_quickly_follows_once(browser, assert) {
  const server = await Server.start(`${KEYS}store: memory\n${RULES}`);
  const page = await openPage(browser, server.url);
  await signIn(page, ADMIN);
  await page.getByText("live", { exact: true }).waitFor();
  const show = (times) => page.evaluate((times) => {
    for (let time = 0; time < times; time++) {
      for (const hidden of [true, false]) {
        Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
        document.dispatchEvent(new Event("visibilitychange"));
      }
    }
  }, times);
  const pages = async () => (await server.call("GET", "api/v1/status")).body.pages;
  await show(8);
  await until("it follows again", async () => (await pages()) === 1);
  let asked = 0;
  page.on("request", (request) => (asked += request.url().endsWith("/api/v1/status") ? 1 : 0));
  await page.waitForTimeout(7000);
  assert.deepEqual([await pages(), asked], [1, 0], "one stream, and none of the eight calls that were under way goes on");
  // Hidden, it follows no more, and no stream comes back by itself.
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await until("it follows no more", async () => (await pages()) === 0);
  await page.waitForTimeout(2500);
  assert.equal(await pages(), 0);
  await show(1);
  await page.getByText("live", { exact: true }).waitFor();
  await until("it follows again", async () => (await pages()) === 1);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}
