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
  await signIn(page, ADMIN);
  await page.getByText("up", { exact: true }).waitFor();
  await server.check("api", { user: "ada" }, 9);
  await page.getByRole("link", { name: "ada" }).first().waitFor();
  for (const stream of streams) stream.close();
  await until("there is room again", async () => (await server.call("GET", "api/v1/status")).body.pages === 0);
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
}
