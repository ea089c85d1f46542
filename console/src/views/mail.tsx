// The queue of the mail relay: lanes that wait and why, messages, and what to do about them.

import { useState } from "preact/hooks";
import { call, path, query } from "../api";
import { Dialog, Moment, NEEDS_ADMIN, NeedsAdmin, Notice, Table, Text, When, isAdmin, link, useCall } from "../parts";
import { number } from "../words";

interface Lane {
  tenant: string;
  account: string | null;
  domain: string;
  waiting: number;
  in_flight: number;
  next_due: string | null;
  sleeps_until: string | null;
  held: boolean;
  cause: string | null;
  reason: string | null;
  oldest?: string | null;
  last_error?: string | null;
}

interface Message {
  id: string;
  tenant: string;
  status: string;
  from: string;
  to: string[];
  recipients: number;
  size: number;
  attempts: number;
  accepted_at: string;
  deferred_until: string | null;
  deferred_by: string | null;
}

interface Detail extends Message {
  message_id: string | null;
  parts: { domain: string; attempts: number; due_at: string | null; recipients: { address: string; status: string; code: string | null; reply: string | null }[] }[];
  timeline: { at: string; event: string; domain: string | null; account: string | null; text: string | null; until: string | null }[];
}

const CAUSES: Record<string, string> = {
  limit: "limit reached",
  throttled: "the receiving server asked to slow down",
  paused: "no account can be used",
  busy: "all connections to the server are in use",
  outage: "the store or the disk cannot be used",
};

const TONES: Record<string, string> = { sent: "allow", bounced: "deny", deferred: "defer", retrying: "defer", queued: "wait", cancelled: "blocked" };

export function Mail({ about }: { about: string }) {
  return about ? <One id={about} /> : <Queue />;
}

function Queue() {
  const [recipient, setRecipient] = useState("");
  const [status, setStatus] = useState("");
  const lanes = useCall<{ lanes: Lane[]; total: number }>("lanes?limit=200", 5000);
  const messages = useCall<{ messages: Message[]; next: string | null }>(query("messages", { recipient, status, limit: 100 }), 5000);
  const [pausing, setPausing] = useState<Lane | null>(null);
  const admin = isAdmin();
  const find = (event: SubmitEvent) => {
    event.preventDefault();
    setRecipient(String(new FormData(event.currentTarget as HTMLFormElement).get("recipient") ?? "").trim());
  };
  const toggle = async () => {
    if (!pausing) return;
    await call("POST", `lanes/${pausing.held ? "resume" : "pause"}`, { tenant: pausing.tenant, domain: pausing.domain });
    void lanes.load();
  };
  return (
    <>
      <div class="title">
        <h1>Mail</h1>
      </div>
      <h2>Lanes</h2>
      {lanes.error && <Notice tone="bad">{lanes.error}</Notice>}
      <Table
        none="No mail waits."
        rows={lanes.data?.lanes ?? []}
        id={(row) => `${row.tenant} ${row.account} ${row.domain}`}
        columns={[
          { name: "tenant", cell: (row) => <Text>{row.tenant + (row.account ? ` / ${row.account}` : "")}</Text> },
          { name: "to", cell: (row) => <Text>{row.domain}</Text> },
          { name: "waiting", right: true, cell: (row) => number(row.waiting) },
          { name: "in flight", right: true, cell: (row) => number(row.in_flight) },
          { name: "why", cell: (row) => <Reason lane={row} /> },
          { name: "next attempt", right: true, cell: (row) => (row.held ? "when resumed" : row.sleeps_until || row.next_due ? <When>{row.sleeps_until ?? row.next_due}</When> : "now") },
          { name: "oldest", right: true, cell: (row) => (row.oldest ? <When>{row.oldest}</When> : "–") },
          { name: "last error", cell: (row) => <Text>{row.last_error}</Text> },
          {
            name: "",
            right: true,
            cell: (row) => (
              <>
                <button type="button" disabled={!admin} title={admin ? undefined : NEEDS_ADMIN} onClick={() => setPausing(row)}>
                  {row.held ? "Resume" : "Pause"}
                </button>
                <NeedsAdmin />
              </>
            ),
          },
        ]}
      />
      {lanes.data && lanes.data.total > lanes.data.lanes.length && <p class="dim">{number(lanes.data.total)} lanes in all.</p>}
      <h2>Messages</h2>
      <form class="filter" onSubmit={find}>
        <input name="recipient" type="search" aria-label="Recipient" placeholder="recipient, or @domain" maxLength={400} />
        <select aria-label="Status" value={status} onChange={(event) => setStatus(event.currentTarget.value)}>
          {["", "queued", "deferred", "retrying", "sent", "bounced", "cancelled"].map((name) => (
            <option key={name} value={name}>
              {name || "any status"}
            </option>
          ))}
        </select>
        <button type="submit">Find</button>
      </form>
      {messages.error && <Notice tone="bad">{messages.error}</Notice>}
      <Table
        none="No such messages."
        rows={messages.data?.messages ?? []}
        id={(row) => row.id}
        columns={[
          { name: "accepted", cell: (row) => <Moment>{row.accepted_at}</Moment> },
          { name: "status", cell: (row) => <span class={`verdict ${TONES[row.status] ?? ""}`}>{row.status}</span> },
          { name: "from", cell: (row) => <Text>{row.from || "<>"}</Text> },
          { name: "to", cell: (row) => <a href={link("mail", row.id)}><Text>{row.to.slice(0, 2).join(", ") + (row.recipients > 2 ? ` and ${row.recipients - 2} more` : "")}</Text></a> },
          { name: "attempts", right: true, cell: (row) => number(row.attempts) },
          { name: "deferred by", cell: (row) => (row.deferred_by ? <><Text>{row.deferred_by}</Text> <When>{row.deferred_until}</When></> : "–") },
        ]}
      />
      {messages.data?.next && <p class="dim">There are more: filter by recipient or status.</p>}
      {pausing && (
        <Dialog title={pausing.held ? "Resume sending?" : "Pause sending?"} action={pausing.held ? "Resume" : "Pause"} run={toggle} close={() => setPausing(null)}>
          <p>
            Mail of <Text>{pausing.tenant}</Text> to <Text>{pausing.domain}</Text>, on all nodes.
          </p>
        </Dialog>
      )}
    </>
  );
}

const Reason = ({ lane }: { lane: Lane }) => {
  if (lane.held) return <span class="verdict blocked">paused by an operator</span>;
  if (!lane.cause) return <span class="dim">{lane.waiting ? "due later" : "being sent"}</span>;
  return (
    <>
      <span class="verdict defer">{CAUSES[lane.cause] ?? lane.cause}</span> <Text>{lane.reason}</Text>
    </>
  );
};

function One({ id }: { id: string }) {
  const { data, error, load } = useCall<Detail>(`messages/${path(id)}`, 5000);
  const [asking, setAsking] = useState<"retry" | "cancel" | null>(null);
  const [done, setDone] = useState("");
  const admin = isAdmin();
  const act = async () => {
    if (asking === "retry") {
      const { retried } = await call<{ retried: number }>("POST", `messages/${path(id)}/retry`);
      setDone(retried ? "The relay tries it now." : "No recipient is waiting.");
    } else {
      const { cancelled } = await call<{ cancelled: boolean }>("POST", `messages/${path(id)}/cancel`);
      setDone(cancelled ? "It is cancelled for all recipients that were waiting." : "No recipient is waiting.");
    }
    void load();
  };
  const title = admin ? undefined : NEEDS_ADMIN;
  return (
    <>
      <div class="title">
        <h1>Message</h1>
        <a href={link("mail")}>all mail</a>
      </div>
      {error && <Notice tone="bad">{error}</Notice>}
      {done && <Notice tone="good">{done}</Notice>}
      {data && (
        <section class="card" aria-label="message">
          <dl>
            <dt>Status</dt>
            <dd><span class={`verdict ${TONES[data.status] ?? ""}`}>{data.status}</span></dd>
            <dt>From</dt>
            <dd><Text>{data.from || "<>"}</Text></dd>
            <dt>Message-ID</dt>
            <dd><Text>{data.message_id}</Text></dd>
            <dt>Accepted</dt>
            <dd><Moment>{data.accepted_at}</Moment></dd>
            <dt>Size</dt>
            <dd>{number(data.size)} bytes</dd>
          </dl>
          <div class="buttons">
            <button type="button" disabled={!admin} title={title} onClick={() => setAsking("retry")}>Retry now</button>
            <button type="button" disabled={!admin} title={title} onClick={() => setAsking("cancel")}>Cancel</button>
            <NeedsAdmin />
          </div>
        </section>
      )}
      {data && (
        <>
          <h2>Recipients</h2>
          <Table
            none="None."
            rows={data.parts.flatMap((part) => part.recipients.map((one) => ({ ...one, due: part.due_at })))}
            id={(row) => row.address}
            columns={[
              { name: "recipient", cell: (row) => <Text>{row.address}</Text> },
              { name: "status", cell: (row) => row.status },
              { name: "reply", cell: (row) => <Text>{[row.code, row.reply].filter(Boolean).join(" ") || "–"}</Text> },
              { name: "next attempt", right: true, cell: (row) => (row.status === "waiting" && row.due ? <When>{row.due}</When> : "–") },
            ]}
          />
          <h2>What happened</h2>
          <Table
            none="Nothing yet."
            rows={data.timeline.map((event, index) => ({ ...event, index }))}
            id={(row) => String(row.index)}
            columns={[
              { name: "at", cell: (row) => <Moment>{row.at}</Moment> },
              { name: "event", cell: (row) => row.event },
              { name: "to", cell: (row) => <Text>{row.domain}</Text> },
              { name: "through", cell: (row) => <Text>{row.account}</Text> },
              { name: "text", cell: (row) => <Text>{row.text}</Text> },
            ]}
          />
        </>
      )}
      {asking && (
        <Dialog title={asking === "retry" ? "Try it now?" : "Cancel the message?"} action={asking === "retry" ? "Retry" : "Cancel the message"} run={act} close={() => setAsking(null)}>
          <p>{asking === "retry" ? "Limits still apply." : "Waiting recipients will not receive it."}</p>
        </Dialog>
      )}
    </>
  );
}
