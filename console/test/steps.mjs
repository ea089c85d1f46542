// Steps that several tests take: opening a page as an operator, confirming an action, taking a picture.
import { join } from "node:path";
import { ADMIN, KEYS, Server, openPage, root, signIn } from "./bench.mjs";

export const CONFIG = `${KEYS}store: memory
rules:
  everybody: { limits: 500/s burst 2000 }
  user: { by: user, limits: [20/min, 500/day], overrides: { "batch": [2000/min] } }
  address: { by: ip, limits: 30/min, on_exceed: observe }
  login: { by: [user, ip], limits: 5/min, code: TOO_MANY_LOGINS }
policies: { api: [everybody, user, address], login: [login] }
guards: { signin: by account }
`;

/** A relay whose one account sends to this port. */
export const mailConfig = (port) => `${KEYS}store: memory
rules: { sender: { by: sender, limits: 100/hour }, account: { by: [tenant, account], limits: 2/hour, on_exceed: defer } }
policies: { accept: [sender], deliver: [account] }
relay:
  hostname: relay.example
  listen: [{ smtp: "127.0.0.1:0" }]
  queue: { dir: ./queue, min_free: 1KiB }
  accept: accept
  accounts:
    default/main: { host: 127.0.0.1, port: ${port}, tls: none }
`;

export const pictures = process.argv.includes("--screenshots");

/** Takes a picture for a guide. */
export async function picture(page, name, options = {}) {
  if (pictures) await page.screenshot({ path: join(root, `docs/guides/${name}.png`), ...options });
}

export async function opened(browser, config = CONFIG, token = ADMIN) {
  const server = await Server.start(config);
  const page = await openPage(browser, server.url);
  await signIn(page, token);
  await page.getByText("live", { exact: true }).waitFor();
  return { server, page };
}

/** Clicks a button of a card, and confirms in the dialog. */
export async function act(page, button, fill = async () => {}) {
  await button.click();
  const dialog = page.getByRole("dialog");
  await fill(dialog);
  await dialog.locator("button[type=submit]").click();
  await dialog.waitFor({ state: "detached" });
}

/** The counts of a key. */
export const count = async (server, rule, key) => (await server.call("GET", `api/v1/counters/${rule}/${encodeURIComponent(key)}`)).body;

/** Fails logins of an account at the guard `signin`. */
export async function failLogins(server, account, times = 2) {
  for (let attempt = 0; attempt < times; attempt++) {
    const begun = await server.call("POST", "api/v1/guards/signin/begin", { fields: { account } });
    await server.call("POST", "api/v1/guards/finish", { ticket: begun.body.ticket, outcome: "failure" });
  }
}

/** A configuration with a guard whose locks are shown. */
export const GUARDED = CONFIG.replace("signin: by account", "signin: { policy: signin }")
  .replace("login: [login] }", "login: [login], signin: [lock, hidden] }")
  .replace("policies:", "  lock: { by: account, limits: ladder 2 lock 15m, secret: false }\n  hidden: { by: account, limits: ladder 2 +1s }\npolicies:");
