// The queue of the mail relay, against a mail server that refuses for now.
import { createServer } from "node:net";
import { READER, go, overflows, until } from "./bench.mjs";
import { act, mailConfig, opened, picture } from "./steps.mjs";

const HOSTILE = "<img src=x onerror=alert(1)> \"><script>alert(1)</script>";

/** A mail server that answers each recipient like this. */
async function mailServer(reply) {
  const sockets = new Set();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket)).on("error", () => undefined);
    socket.write("220 there.example ESMTP\r\n");
    let rest = "";
    socket.on("data", (data) => {
      const lines = (rest + data).split("\r\n");
      rest = lines.pop();
      for (const line of lines) {
        const word = line.slice(0, 4).toUpperCase();
        if (word === "EHLO") socket.write("250-there.example\r\n250 PIPELINING\r\n");
        else if (word === "RCPT") socket.write(`${reply}\r\n`);
        else if (word === "DATA") socket.write("503 5.5.1 no valid recipients\r\n");
        else if (word === "QUIT") socket.end("221 bye\r\n");
        else socket.write("250 ok\r\n");
      }
    });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const close = () => {
    for (const socket of sockets) socket.destroy();
    server.close();
  };
  return { port: server.address().port, close };
}

const submit = async (server, assert, to) => {
  const sent = await server.call("POST", "api/v1/messages", { from: "ada@acme.example", to, subject: "hi", text: "hello" });
  assert.equal(sent.status, 202, JSON.stringify(sent.body));
  return sent.body.id;
};

const lane = (page, domain) => page.getByRole("row").filter({ has: page.getByRole("cell", { name: domain, exact: true }) });
const cell = (row, name) => row.locator(`td[data-name="${name}"]`);

export async function mail_shows_lanes_and_messages_can_be_retried_and_cancelled(browser, assert) {
  const away = await mailServer("450 4.2.1 mailbox busy, try later");
  const { server, page } = await opened(browser, mailConfig(away.port));
  for (const to of ["bob@there.example", "carol@there.example", "dan@elsewhere.example"]) await submit(server, assert, to);
  await page.getByRole("link", { name: "Mail" }).click();
  // The account may send two messages an hour: two are refused for now, and the third waits for the limit.
  await until("two attempts have failed and one waits for the limit", async () => {
    const { lanes } = (await server.call("GET", "api/v1/lanes")).body;
    return lanes.some((one) => one.last_error) && lanes.some((one) => one.cause === "limit");
  });
  await until("the page shows it", async () => (await page.getByText("limit reached").count()) > 0);
  await page.getByText("450").first().waitFor();
  const { lanes } = (await server.call("GET", "api/v1/lanes")).body;
  for (const one of lanes) {
    const row = lane(page, one.domain);
    if (one.last_error) {
      assert.match(one.last_error, /450 4\.2\.1 mailbox busy, try later/);
      assert.equal(await cell(row, "last error").innerText(), one.last_error);
    }
    if (one.cause === "limit") {
      assert.match(await cell(row, "why").innerText(), /limit reached\s+account default,main/);
      assert.match(await cell(row, "next attempt").innerText(), /^in (1h|59m|60m)/);
    } else {
      assert.match(await cell(row, "next attempt").innerText(), /^in |^now$/);
    }
    assert.equal(await cell(row, "oldest").locator("time").getAttribute("datetime"), one.oldest);
    assert.match(await cell(row, "oldest").innerText(), /ago|now/);
  }
  await picture(page, "console-mail");
  await page.getByLabel("Recipient").fill("bob@there.example");
  await page.getByRole("button", { name: "Find" }).click();
  await page.getByRole("link", { name: "carol@there.example" }).waitFor({ state: "detached" });
  await page.getByRole("link", { name: "bob@there.example" }).click();
  const message = page.getByRole("region", { name: "message" });
  await act(page, message.getByRole("button", { name: "Retry now" }));
  await page.getByText("The relay tries it now.").waitFor();
  await act(page, message.getByRole("button", { name: "Cancel" }));
  await message.getByText("cancelled").waitFor();
  await page.getByRole("link", { name: "all mail" }).click();
  await page.getByLabel("Status").selectOption("cancelled");
  await page.getByRole("link", { name: "bob@there.example" }).waitFor();
  // Lanes are paused and resumed.
  const elsewhere = lane(page, "elsewhere.example");
  await act(page, elsewhere.getByRole("button", { name: "Pause" }));
  await elsewhere.getByText("paused by an operator").waitFor();
  await act(page, elsewhere.getByRole("button", { name: "Resume" }));
  await elsewhere.getByText("paused by an operator").waitFor({ state: "detached" });
  await go(page, "changes");
  for (const action of ["mail.pause", "mail.resume", "message.retry", "message.cancel"]) {
    await page.getByRole("cell", { name: action }).waitFor();
  }
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
  away.close();
}

export async function hostile_text_in_mail_is_shown_as_text_and_fits_on_a_phone(browser, assert) {
  const away = await mailServer(`450 4.2.1 ${HOSTILE} ${"x".repeat(200)}`);
  const { server, page } = await opened(browser, mailConfig(away.port));
  const recipient = `"<img src=x onerror=alert(1)>"@there.example`;
  const hostile = await submit(server, assert, recipient);
  const plain = await submit(server, assert, "bob@there.example");
  await until("the server has refused", async () => (await server.call("GET", `api/v1/messages/${plain}`)).body.attempts > 0);
  for (const width of [1200, 360]) {
    await page.setViewportSize({ width, height: 740 });
    for (const [view, texts] of [["mail", [recipient, HOSTILE]], [`mail/${hostile}`, [recipient]], [`mail/${plain}`, [HOSTILE]]]) {
      await go(page, view);
      await until(`${view} shows the text`, async () => {
        const shown = await page.locator("main").innerText();
        return texts.every((text) => shown.includes(text));
      });
      assert.equal(await overflows(page), false, `${view} at ${width}`);
      assert.equal(await page.locator("main img, main script").count(), 0);
    }
  }
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
  away.close();
}

export async function a_reader_cannot_touch_mail(browser, assert) {
  const away = await mailServer("450 4.2.1 later");
  const { server, page } = await opened(browser, mailConfig(away.port), READER);
  const id = await submit(server, assert, "bob@there.example");
  await go(page, "mail");
  const pause = page.getByRole("button", { name: "Pause" });
  await pause.waitFor();
  assert.deepEqual([await pause.isDisabled(), await pause.getAttribute("title")], [true, "This needs a key with the role admin."]);
  await go(page, `mail/${id}`);
  await page.getByText("What happened").waitFor();
  for (const name of ["Retry now", "Cancel"]) {
    assert.equal(await page.getByRole("button", { name, exact: true }).isDisabled(), true, name);
  }
  assert.deepEqual(page.faults, []);
  await server.kill("SIGKILL");
  away.close();
}
