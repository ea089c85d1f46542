// Measures what open pages cost the server: its CPU time with and without 100 of them, idle and under load.
// `TOLLGATE=target/release/tollgate node console/test/load.mjs` measures a release build.
import { readFileSync } from "node:fs";
import { Agent, get, request } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { ADMIN, KEYS, Server, cleanUp } from "./bench.mjs";

const PAGES = 100;
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

const open = () => new Promise((done, fail) => {
  get({ host: "127.0.0.1", port: server.port, path: "/api/v1/status/stream", headers, agent: false }, (answer) => {
    answer.resume();
    done(answer.statusCode);
  }).on("error", fail);
});

const shown = (pages, { percent, rate }) => console.log(`${rate.toFixed(0)} checks a second, ${pages} pages: ${percent.toFixed(1)} % of one core`);
await share(CHECKS_PER_SECOND);
const [idle, loaded] = [await share(0), await share(CHECKS_PER_SECOND)];
const statuses = await Promise.all(Array.from({ length: PAGES }, open));
if (statuses.some((status) => status !== 200)) throw new Error(`a page was refused: ${statuses}`);
const [idlePages, loadedPages] = [await share(0), await share(CHECKS_PER_SECOND)];
shown(0, idle);
shown(PAGES, idlePages);
shown(0, loaded);
shown(PAGES, loadedPages);
await cleanUp();
process.exit(0);
