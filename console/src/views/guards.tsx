// Guards of logins with their locks, and the blocklist and the allowlist.

import { useState } from "preact/hooks";
import { type Ban, call, path, query } from "../api";
import { Dialog, KeyLink, Lasts, Listings, NEEDS_ADMIN, NeedsAdmin, Notice, Table, Text, When, isAdmin, message, useCall } from "../parts";
import { ago, number, span } from "../words";

interface Guard {
  name: string;
  policy: string;
  fields: string[];
  begun: number;
  refused: number;
  failures: number;
  lockouts: number;
}

interface Lock {
  rule: string;
  key: string;
  fields: Record<string, string> | null;
  failures: number;
  since: string;
  locked_until: string;
}

export function Guards() {
  const guards = useCall<{ guards: Guard[] }>("guards", 5000);
  return (
    <>
      <div class="title">
        <h1>Guards and lists</h1>
      </div>
      {guards.error && <Notice tone="bad">{guards.error}</Notice>}
      <h2>Guards</h2>
      <Table
        none="No guards are configured."
        rows={guards.data?.guards ?? []}
        id={(row) => row.name}
        columns={[
          { name: "guard", cell: (row) => <Text>{row.name}</Text> },
          { name: "policy", cell: (row) => <Text>{row.policy}</Text> },
          { name: "fields", cell: (row) => <Text>{row.fields.join(", ")}</Text> },
          { name: "logins", right: true, cell: (row) => number(row.begun) },
          { name: "failed", right: true, cell: (row) => number(row.failures) },
          { name: "denied", right: true, cell: (row) => number(row.refused) },
          { name: "lockouts", right: true, cell: (row) => number(row.lockouts) },
        ]}
      />
      {guards.data?.guards.map((guard) => (
        <div key={guard.name}>
          <Locks guard={guard.name} />
          <Standing guard={guard} />
        </div>
      ))}
      <Lists />
    </>
  );
}

function Locks({ guard }: { guard: string }) {
  const [limit, setLimit] = useState(50);
  const locks = useCall<{ locks: Lock[]; next: string | null }>(query(`guards/${path(guard)}/locks`, { limit }), 5000);
  const [chosen, setChosen] = useState<Lock | null>(null);
  const [done, setDone] = useState("");
  const admin = isAdmin();
  const unlock = async () => {
    await call("POST", `guards/${path(guard)}/unlock`, { fields: chosen?.fields });
    setDone(`${chosen?.key} is unlocked.`);
    void locks.load();
  };
  return (
    <section aria-label={`locks of ${guard}`}>
      <h2>
        Locks of <Text>{guard}</Text>
      </h2>
      {locks.error && <Notice tone="bad">{locks.error}</Notice>}
      {done && <Notice tone="good">{done}</Notice>}
      <Table
        none="No key is locked."
        rows={locks.data?.locks ?? []}
        id={(row) => `${row.rule} ${row.key}`}
        columns={[
          { name: "key", cell: (row) => <KeyLink>{row.key}</KeyLink> },
          { name: "rule", cell: (row) => <Text>{row.rule}</Text> },
          { name: "failures", right: true, cell: (row) => number(row.failures) },
          { name: "since", right: true, cell: (row) => <When>{row.since}</When> },
          { name: "ends", right: true, cell: (row) => <When>{row.locked_until}</When> },
          {
            name: "",
            right: true,
            cell: (row) => (
              <>
                <button type="button" disabled={!admin || !row.fields} title={admin ? undefined : NEEDS_ADMIN} onClick={() => setChosen(row)}>
                  Unlock
                </button>
                {admin && !row.fields ? <span class="dim small why-not">its key is secret</span> : <NeedsAdmin />}
              </>
            ),
          },
        ]}
      />
      {locks.data?.next && limit < 1000 && (
        <button type="button" onClick={() => setLimit(Math.min(1000, limit * 4))}>
          More
        </button>
      )}
      {chosen && (
        <Dialog title="Clear the failures and unlock?" action="Unlock" run={unlock} close={() => setChosen(null)}>
          <p>
            <Text>{chosen.key}</Text> may try again immediately.
          </p>
        </Dialog>
      )}
    </section>
  );
}

interface Ladder {
  rule: string;
  key: string;
  observed: boolean;
  failures: number;
  captcha: boolean;
  locked_until: string | null;
  delay_ms: number;
  forgotten_at: string | null;
}

/** The failures of one user. Keys of a guard may be secret, so the operator has to name the user. */
function Standing({ guard }: { guard: Guard }) {
  const [fields, setFields] = useState<Record<string, string> | null>(null);
  const [ladders, setLadders] = useState<Ladder[]>([]);
  const [said, setSaid] = useState<{ tone: "bad" | "good"; text: string } | null>(null);
  const [asking, setAsking] = useState(false);
  const admin = isAdmin();
  const look = async (wanted: Record<string, string>) => {
    setFields(wanted);
    try {
      setLadders((await call<{ ladders: Ladder[] }>("POST", `guards/${path(guard.name)}/inspect`, { fields: wanted })).ladders);
      return true;
    } catch (error) {
      setSaid({ tone: "bad", text: message(error) });
      setFields(null);
      return false;
    }
  };
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setSaid(null);
    const values = [...new FormData(event.currentTarget as HTMLFormElement)].map(([name, value]) => [name, String(value).trim()] as const);
    void look(Object.fromEntries(values.filter(([, value]) => value)));
  };
  const unlock = async () => {
    const { unlocked } = await call<{ unlocked: unknown[] }>("POST", `guards/${path(guard.name)}/unlock`, { fields });
    if (fields) await look(fields);
    setSaid({ tone: "good", text: unlocked.length ? "The failures are forgotten." : "There were no failures." });
  };
  return (
    <section aria-label={`a user at ${guard.name}`}>
      <form class="filter" onSubmit={submit}>
        {guard.fields.map((field) => (
          <input key={field} name={field} placeholder={field} aria-label={`${guard.name} ${field}`} maxLength={1024} />
        ))}
        <button type="submit">Show failures</button>
      </form>
      {said && <Notice tone={said.tone}>{said.text}</Notice>}
      {fields && (
        <>
          <Table
            none="No failures."
            rows={ladders}
            id={(row) => row.rule}
            columns={[
              { name: "rule", cell: (row) => <Text>{row.rule}</Text> },
              { name: "failures", right: true, cell: (row) => number(row.failures) },
              { name: "next attempt", cell: (row) => <Text>{next(row)}</Text> },
              { name: "forgotten", right: true, cell: (row) => (row.forgotten_at ? <When>{row.forgotten_at}</When> : "–") },
            ]}
          />
          <div class="buttons">
            <button type="button" disabled={!admin} title={admin ? undefined : NEEDS_ADMIN} onClick={() => setAsking(true)}>
              Clear the failures
            </button>
            <NeedsAdmin />
          </div>
        </>
      )}
      {asking && (
        <Dialog title="Clear the failures and unlock?" action="Unlock" run={unlock} close={() => setAsking(false)}>
          <p>
            <Text>{Object.values(fields ?? {}).join(", ")}</Text> may try again immediately.
          </p>
        </Dialog>
      )}
    </section>
  );
}

const next = (ladder: Ladder) => {
  const when = ladder.locked_until ? `locked, ${ago(ladder.locked_until)}` : ladder.delay_ms ? `after ${span(ladder.delay_ms)}` : "immediately";
  return when + (ladder.captcha ? ", with a CAPTCHA" : "") + (ladder.observed ? " (only observed)" : "");
};

function Lists() {
  const [contains, setContains] = useState("");
  const [kind, setKind] = useState("");
  const [limit, setLimit] = useState(50);
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState<Ban | null>(null);
  const [done, setDone] = useState("");
  const bans = useCall<{ bans: Ban[]; next: string | null }>(query("bans", { contains, kind, limit }), 5000);
  const admin = isAdmin();
  const add = async (values: FormData) => {
    const [target, lasts, reason] = ["target", "for", "reason"].map((name) => String(values.get(name) ?? "").trim());
    const body = { target, kind: values.get("kind"), ...(lasts && { for: lasts }), ...(reason && { reason }), public: values.get("public") !== null };
    await call("POST", "bans", body);
    setDone(`${target} is on the list.`);
    void bans.load();
  };
  const remove = async () => {
    const target = removing?.target ?? "";
    const answer = await call<{ configured: boolean }>("DELETE", `bans/${path(target)}`);
    setDone(answer.configured ? `The entry is removed. The configuration lists ${target} too.` : `${target} is removed from the list.`);
    void bans.load();
  };
  return (
    <section aria-label="lists">
      <div class="title">
        <h2>Blocklist and allowlist</h2>
        <button type="button" disabled={!admin} title={admin ? undefined : NEEDS_ADMIN} onClick={() => setAdding(true)}>
          Add an entry
        </button>
        <NeedsAdmin />
      </div>
      <div class="filter">
        <input type="search" aria-label="Filter the lists" placeholder="part of a target" value={contains} onInput={(event) => setContains(event.currentTarget.value)} />
        <select aria-label="Kind" value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
          <option value="">both lists</option>
          <option value="block">blocklist</option>
          <option value="allow">allowlist</option>
        </select>
      </div>
      {bans.error && <Notice tone="bad">{bans.error}</Notice>}
      {done && <Notice tone="good">{done}</Notice>}
      <Listings rows={bans.data?.bans ?? []} none="No entries." onRemove={setRemoving} />
      {bans.data?.next && limit < 1000 && (
        <button type="button" onClick={() => setLimit(Math.min(1000, limit * 4))}>
          More
        </button>
      )}
      {adding && (
        <Dialog title="Add an entry" action="Add" run={add} close={() => setAdding(false)}>
          <label>
            Target
            <input name="target" required placeholder="203.0.113.0/24, user=ada" autoFocus />
          </label>
          <label>
            List
            <select name="kind">
              <option value="block">blocklist</option>
              <option value="allow">allowlist</option>
            </select>
          </label>
          <Lasts>until it is removed</Lasts>
          <label>
            Reason
            <input name="reason" maxLength={200} />
          </label>
          <label class="row">
            <input type="checkbox" name="public" /> Show the reason to the client
          </label>
        </Dialog>
      )}
      {removing && (
        <Dialog title="Remove the entry?" action="Remove" run={remove} close={() => setRemoving(null)}>
          <p>
            <Text>{removing.target}</Text>
          </p>
        </Dialog>
      )}
    </section>
  );
}
