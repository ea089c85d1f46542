// What the tests share: the real program on free ports, a browser, and waiting.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

export const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const program = process.env.TOLLGATE ?? join(root, "target/debug/tollgate");

export const ADMIN = "admin-token-0123456789";
export const READER = "reader-token-0123456789";
export const CHECKER = "checker-token-0123456789";

/** Keys of all roles, for a configuration. */
export const KEYS = `keys:
  - { name: ops, role: admin, token_env: ADMIN_TOKEN }
  - { name: watcher, role: read, token_env: READER_TOKEN }
  - { name: app, role: check, token_env: CHECKER_TOKEN }
`;

const cleanups = [];

/** Ends everything that was started, newest first. */
export async function cleanUp() {
  for (const end of cleanups.splice(0).reverse()) await end();
}

export async function until(what, check, ms = 20000) {
  const start = Date.now();
  for (;;) {
    const found = await check();
    if (found) return found;
    if (Date.now() - start > ms) throw new Error(`not within ${ms} ms: ${what}`);
    await pause(50);
  }
}

export async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

export class Server {
  constructor(config, port) {
    this.home = mkdtempSync(join(tmpdir(), "tollgate-console-"));
    this.port = port;
    this.configure(config);
    cleanups.push(async () => {
      await this.kill("SIGKILL");
      rmSync(this.home, { recursive: true, force: true });
    });
  }

  static async start(config) {
    const server = new Server(config, await freePort());
    await server.run();
    return server;
  }

  configure(config) {
    writeFileSync(join(this.home, "tollgate.yaml"), config);
  }

  get url() {
    return `http://127.0.0.1:${this.port}/`;
  }

  get environment() {
    const listen = `127.0.0.1:${this.port}`;
    return { TOLLGATE__LISTEN__HTTP: listen, TOLLGATE__DRAIN: "1s", TOLLGATE_SERVER: this.url, ADMIN_TOKEN: ADMIN, READER_TOKEN: READER, CHECKER_TOKEN: CHECKER, TOLLGATE_TOKEN: ADMIN };
  }

  async run() {
    this.child = spawn(program, ["serve", "-c", "tollgate.yaml"], { cwd: this.home, env: this.environment, stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    this.child.stderr.on("data", (data) => (said += data));
    this.child.stdout.on("data", (data) => (said += data));
    this.exited = new Promise((done) => this.child.once("exit", done));
    await until(`the server listens: ${said}`, async () => {
      if (this.child.exitCode !== null) throw new Error(`the server ended: ${said}`);
      return fetch(`${this.url}livez`).then((one) => one.ok, () => false);
    });
    this.said = () => said;
  }

  async kill(signal) {
    if (this.child && this.child.exitCode === null && this.child.signalCode === null) {
      this.child.kill(signal);
      await this.exited;
    }
  }

  /** Calls the API. Returns status and body. */
  async call(method, path, body, token = ADMIN, headers = {}) {
    const response = await fetch(`${this.url}${path}`, { method, headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json", ...headers }, body: body && JSON.stringify(body) });
    const text = await response.text();
    return { status: response.status, headers: response.headers, body: text.startsWith("{") ? JSON.parse(text) : text };
  }

  /** Asks for so many attempts at once. */
  async check(policy, fields, times = 1) {
    const attempts = Array.from({ length: times }, () => ({ policy, fields }));
    return (await this.call("POST", "api/v1/check", { attempts })).body.decisions;
  }

  /** Runs a command of the program. */
  async command(...words) {
    const child = spawn(program, words, { cwd: this.home, env: this.environment });
    let said = "";
    child.stdout.on("data", (data) => (said += data));
    child.stderr.on("data", (data) => (said += data));
    const code = await new Promise((done) => child.once("exit", done));
    return { code, said };
  }
}

/** A Redis server that can be stopped and started again. */
export class Redis {
  static async start() {
    const redis = new Redis();
    redis.port = await freePort();
    cleanups.push(() => redis.stop());
    await redis.run();
    return redis;
  }

  async run() {
    this.child = spawn("redis-server", ["--port", String(this.port), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"], { stdio: "ignore", cwd: tmpdir() });
    this.exited = new Promise((done) => this.child.once("exit", done));
    const { connect } = await import("node:net");
    await until("Redis listens", () => new Promise((done) => {
      const socket = connect(this.port, "127.0.0.1");
      socket.once("connect", () => (socket.destroy(), done(true)));
      socket.once("error", () => done(false));
    }));
  }

  async stop() {
    if (this.child && this.child.exitCode === null && this.child.signalCode === null) {
      this.child.kill("SIGKILL");
      await this.exited;
    }
  }
}

export async function openBrowser() {
  const profile = mkdtempSync(join(tmpdir(), "tollgate-chromium-"));
  const browser = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
    viewport: { width: 1200, height: 860 },
    permissions: ["clipboard-read", "clipboard-write"],
  });
  cleanups.push(async () => {
    await browser.close();
    rmSync(profile, { recursive: true, force: true });
  });
  return browser;
}

/** A page whose every error fails the test that looks at `page.faults`. */
export async function openPage(browser, address) {
  await browser.clearCookies();
  const page = await browser.newPage();
  page.setDefaultTimeout(15000);
  page.faults = [];
  page.on("pageerror", (error) => page.faults.push(String(error)));
  page.on("dialog", (dialog) => {
    page.faults.push(`a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("console", (line) => {
    // The browser reports refused and failed requests by itself; the tests look at what the page makes of them.
    if (line.type() === "error" && !/Failed to load resource|net::ERR_/.test(line.text())) page.faults.push(line.text());
  });
  page.on("request", (request) => {
    if (new URL(request.url()).hostname !== "127.0.0.1") page.faults.push(`another host: ${request.url()}`);
  });
  await page.goto(address);
  return page;
}

export async function signIn(page, token) {
  await page.getByLabel("Access key").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
}

/** Goes to a view by its fragment. */
export async function go(page, fragment) {
  await page.evaluate((hash) => { location.hash = hash; }, `#/${fragment}`);
}

/** Whether something is wider than the page. */
export const overflows = (page) => page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
