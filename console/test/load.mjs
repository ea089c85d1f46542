// Measures what open pages cost the server: its CPU time and memory without them, with 100 and with 1,000 of them, idle and
// under load. As many as may follow the status; the others ask as the page does (`src/live.ts`).
// `TOLLGATE=target/release/tollgate node console/test/load.mjs` measures a release build.
import { readFileSync } from "node:fs";
import { Agent, get, request } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { ADMIN, KEYS, Server, cleanUp } from "./bench.mjs";

const PAGES = [100, 1000];
const FOLLOWING = 256;
/** How often a page asks, and how often it tries to follow. */
const [ASK_MS, STREAM_MS] = [5000, 30000];
const SECONDS = Number(process.env.PHASE_SECONDS ?? 10);
const CHECKS_PER_SECOND = 1000;

const server = await Server.start(`${KEYS}store: memory
rules: { user: { by: user, limits: 20/min }, address: { by: ip, limits: 100/min } }
policies: { api: [user, address], login: [user], search: [address] }
`);
const headers = { Authorization: `Bearer ${ADMIN}`, "Content-Type": "application/json" };
const agent = new Agent({ keepAlive: true, maxSockets: 8 });

/** CPU time of the server so far, in seconds. */
function used() {
  const fields = readFileSync(`/proc/${server.child.pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

const check = (number) => new Promise((done, fail) => {
  const policy = ["api", "login", "search"][number % 3];
  const asked = request({ host: "127.0.0.1", port: server.port, path: "/api/v1/check", method: "POST", headers, agent }, (answer) => answer.resume().on("end", done));
  asked.on("error", fail);
  asked.end(JSON.stringify({ policy, fields: { user: `user-${number % 500}`, ip: `10.0.${number % 7}.${number % 251}` } }));
});

/** The share of one core that the server uses, and the checks a second that it answers, of so many that are meant to come. */
async function share(checks) {
  const [start, before] = [performance.now(), used()];
  let sent = 0;
  while (performance.now() - start < SECONDS * 1000) {
    const due = Math.floor(((performance.now() - start) / 1000) * checks) - sent;
    await Promise.all(Array.from({ length: Math.min(due, 200) }, () => check(sent++)));
    await pause(20);
  }
  const seconds = (performance.now() - start) / 1000;
  return { percent: ((used() - before) / seconds) * 100, rate: sent / seconds };
}

/** The resident memory of the server, in MiB. */
const memory = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.child.pid}/status`, "utf8"))[1]) / 1024;

/** Opens a path, and returns the status once its head is there. `end` waits for the whole answer. */
const fetched = (path, agent, end) => new Promise((done, fail) => {
  get({ host: "127.0.0.1", port: server.port, path, headers, agent }, (answer) => {
    answer.resume();
    if (end) answer.on("end", () => done(answer.statusCode));
    else done(answer.statusCode);
  }).on("error", fail);
});

const follow = () => fetched("/api/v1/status/stream", false, false);

let [asked, refused] = [0, 0];

/** A page that may not follow: it asks for the status and for the seconds that it missed, over a connection of its own. */
async function ask() {
  const own = new Agent({ keepAlive: true, maxSockets: 1 });
  const expect = async (status, path) => {
    const found = await fetched(path, own, true);
    if (found !== status) throw new Error(`${path} answers with ${found}`);
    asked += 1;
  };
  await pause(Math.random() * ASK_MS);
  await expect(200, "/api/v1/status");
  await expect(200, "/api/v1/status/history");
  for (let next = performance.now() + Math.random() * STREAM_MS; ; ) {
    await pause(ASK_MS);
    await expect(200, "/api/v1/status");
    await expect(200, `/api/v1/status/history?seconds=${ASK_MS / 1000 + 2}`);
    if (performance.now() < next) continue;
    next = performance.now() + STREAM_MS;
    await expect(503, "/api/v1/status/stream");
    refused += 1;
  }
}

const shown = (pages, { percent, rate }) => console.log(`${rate.toFixed(0)} checks a second, ${pages} pages: ${percent.toFixed(1)} % of one core, ${memory().toFixed(0)} MiB`);

/** Both phases with so many pages. */
async function measure(pages) {
  shown(pages, await share(0));
  shown(pages, await share(CHECKS_PER_SECOND));
}

let ending = false;
const failed = (error) => {
  if (ending) return;
  console.error(error);
  process.exit(1);
};
await share(CHECKS_PER_SECOND);
await measure(0);
let open = 0;
for (const pages of PAGES) {
  const following = Math.min(pages, FOLLOWING);
  const statuses = await Promise.all(Array.from({ length: following - Math.min(open, FOLLOWING) }, follow));
  if (statuses.some((status) => status !== 200)) throw new Error(`a page was refused: ${statuses}`);
  for (let page = Math.max(open, FOLLOWING); page < pages; page++) ask().catch(failed);
  open = pages;
  // Every page has asked once before it is measured.
  if (pages > FOLLOWING) await pause(ASK_MS + 1000);
  [asked, refused] = [0, 0];
  const start = performance.now();
  await measure(pages);
  if (pages > FOLLOWING) console.log(`${pages - FOLLOWING} pages ask: ${(asked / (performance.now() - start) * 1000).toFixed(0)} calls a second, ${refused} of them for a stream`);
}
ending = true;
await cleanUp();
process.exit(0);
