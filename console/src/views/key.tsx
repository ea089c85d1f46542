// Everything about one key: each rule with its limits, the lists, the latest decisions, and what to do about it.

import { useEffect, useState } from "preact/hooks";
import { type Ban, type Decision, type KeyRule, type KeyShown, call, get, path, query } from "../api";
import { Decisions, Dialog, Gauge, KeyLink, Lasts, Listings, Notice, Text, link, useCall, useRefusal, useTenant, WhyNot } from "../parts";
import { span } from "../words";

type Open = { kind: "reset" | "override" | "remove"; rule: KeyRule } | { kind: "block"; fields: Record<string, string> } | { kind: "unblock"; ban: Ban };

const isAddress = (text: string) => /^[0-9a-f.:]+$/i.test(text) && /[.:]/.test(text);

export function KeyView({ about }: { about: string }) {
  const [open, setOpen] = useState<Open | null>(null);
  const [done, setDone] = useState("");
  const counts = useCall<KeyShown>(about ? `keys/${path(about)}` : null, 5000);
  const tenant = useTenant();
  const bans = useCall<{ bans: Ban[] }>(about && tenant === null ? query("bans", isAddress(about) ? { address: about, limit: 20 } : { contains: about, limit: 20 }) : null, 5000);
  const decisions = useDecisions(about, counts.data);
  const refusal = useRefusal();
  const refresh = (text: string) => {
    setDone(text);
    void counts.load();
    void bans.load();
  };
  if (!about) return <Ask />;
  const used = counts.data?.rules.filter((rule) => rule.overridden || rule.limits.some((limit) => limit.used > 0)) ?? [];
  const unused = counts.data?.rules.filter((rule) => !used.includes(rule)) ?? [];
  const domain = about.includes("@") ? about.slice(about.lastIndexOf("@") + 1) : "";
  return (
    <>
      <div class="title">
        <h1>
          Key <Text>{about}</Text>
        </h1>
        {domain && (
          <span>
            also: <KeyLink>{domain}</KeyLink>
          </span>
        )}
      </div>
      {done && <Notice tone="good">{done}</Notice>}
      {counts.error && <Notice tone="bad">{counts.error}</Notice>}
      {used.map((rule) => (
        <RuleCard key={rule.rule} rule={rule} open={setOpen} />
      ))}
      {counts.data?.pseudonym && (
        <Notice tone="plain">
          This is the pseudonym of a secret key. Decisions are found by it. To see or to change the counts, look up the key itself.
        </Notice>
      )}
      {counts.data && !counts.data.pseudonym && used.length === 0 && <p class="dim">No rule has counted anything for this key.</p>}
      {unused.length > 0 && (
        <details class="card" open={used.length === 0 && unused.length <= 3}>
          <summary>
            {unused.length} {unused.length === 1 ? "rule" : "rules"} with this kind of key {unused.length === 1 ? "has" : "have"} counted nothing
          </summary>
          {unused.map((rule) => (
            <RuleCard key={rule.rule} rule={rule} open={setOpen} />
          ))}
        </details>
      )}
      {counts.data && counts.data.left_out > 0 && <p class="dim">{counts.data.left_out} more rules are left out.</p>}
      {tenant === null && (
        <>
          <div class="title">
            <h2>Blocklist and allowlist</h2>
            {isAddress(about) && (
              <button type="button" disabled={refusal !== undefined} title={refusal} onClick={() => setOpen({ kind: "block", fields: {} })}>
                Block this address
              </button>
            )}
            {isAddress(about) && <WhyNot />}
          </div>
          {bans.error && <Notice tone="bad">{bans.error}</Notice>}
          <Listings rows={bans.data?.bans ?? []} none="No entry of the blocklist or the allowlist matches." onRemove={(ban) => setOpen({ kind: "unblock", ban })} />
        </>
      )}
      <h2>Latest decisions</h2>
      <Decisions rows={decisions} none="None in the journal. The journal keeps the latest decisions of this node, 1000 by default; under high load it records only a part." />
      {open && <Action open={open} about={about} close={() => setOpen(null)} done={refresh} />}
    </>
  );
}

/** Asks for a key. */
function Ask() {
  const find = (event: SubmitEvent) => {
    event.preventDefault();
    const text = String(new FormData(event.currentTarget as HTMLFormElement).get("key") ?? "").trim();
    if (text) location.hash = link("key", text);
  };
  return (
    <>
      <div class="title">
        <h1>Key</h1>
      </div>
      <form class="filter" onSubmit={find}>
        <input name="key" aria-label="Key" placeholder="ada, 203.0.113.7, ada@example.com, ada,/login" autoFocus required maxLength={4096} />
        <button type="submit" class="primary">
          Look up
        </button>
      </form>
      <p class="dim">
        A user, an address, a mail address, or any other value that your rules count by. A key of several fields has its values joined by commas, in the order of <code>by</code>.
      </p>
    </>
  );
}

function RuleCard({ rule, open }: { rule: KeyRule; open: (open: Open) => void }) {
  const title = useRefusal();
  const admin = title === undefined;
  return (
    <section class="card" aria-label={`rule ${rule.rule}`}>
      <div class="title">
        <h3>
          <Text>{rule.rule}</Text> <span class="dim">{rule.key !== "" && <Text>{rule.key}</Text>}</span>
        </h3>
        <span class="dim small">
          {rule.secret && "keys are secret, this is a pseudonym · "}
          {!rule.enabled && "switched off · "}
          {rule.on_exceed === "observe" && "only observed · "}
          {rule.overridden && `override${rule.override_ends ? `, for ${span(rule.override_ends.after_ms)} more` : ", until it is removed"}`}
        </span>
      </div>
      {rule.limits.length === 0 && <p class="dim none">unlimited</p>}
      {rule.limits.map((reading) => (
        <Gauge key={reading.limit} reading={reading} />
      ))}
      <div class="buttons">
        <button type="button" disabled={!admin} title={title} onClick={() => open({ kind: "reset", rule })}>
          Reset
        </button>
        <button type="button" disabled={!admin} title={title} onClick={() => open({ kind: "override", rule })}>
          Override limits …
        </button>
        {rule.overridden && (
          <button type="button" disabled={!admin} title={title} onClick={() => open({ kind: "remove", rule })}>
            Remove override
          </button>
        )}
        {Object.keys(rule.fields).length > 0 && (
          <button type="button" disabled={!admin} title={title} onClick={() => open({ kind: "block", fields: rule.fields })}>
            Block
          </button>
        )}
        <WhyNot />
      </div>
    </section>
  );
}

function Action({ open, about, close, done }: { open: Open; about: string; close: () => void; done: (text: string) => void }) {
  if (open.kind === "unblock") {
    const { target } = open.ban;
    const run = async () => {
      await call("DELETE", `bans/${path(target)}`);
      done(`The entry ${target} is removed.`);
    };
    return (
      <Dialog title="Remove the entry?" action="Remove" run={run} close={close}>
        <p>
          <Text>{target}</Text>
        </p>
      </Dialog>
    );
  }
  if (open.kind === "block") return <Block fields={open.fields} about={about} close={close} done={done} />;
  const { rule } = open;
  // The key as it was typed: what the server shows of a secret key is only a pseudonym.
  const counter = `counters/${path(rule.rule, about)}`;
  const name = `${rule.rule} ${rule.key}`;
  if (open.kind === "reset") {
    const run = async () => {
      await call("DELETE", counter);
      done(`The counts of ${name} are reset.`);
    };
    return (
      <Dialog title="Reset the counts?" action="Reset" run={run} close={close}>
        <p>
          <Text>{name}</Text> starts at zero again.
        </p>
      </Dialog>
    );
  }
  if (open.kind === "remove") {
    const run = async () => {
      await call("DELETE", `${counter}/override`);
      done(`${name} has the limits of its rule again.`);
    };
    return (
      <Dialog title="Remove the override?" action="Remove" run={run} close={close}>
        <p>
          <Text>{name}</Text> gets the limits of its rule again.
        </p>
      </Dialog>
    );
  }
  const run = async (values: FormData) => {
    const limits = String(values.get("limits")).split(",").map((limit) => limit.trim()).filter(Boolean);
    const lasts = String(values.get("for"));
    await call("PUT", counter, { limits, ...(lasts && { for: lasts }) });
    done(`The limits of ${name} are overridden${lasts ? ` for ${lasts}` : ""}.`);
  };
  return (
    <Dialog title="Override the limits" action="Override" run={run} close={close}>
      <p>
        <Text>{name}</Text>
      </p>
      <label>
        Limits
        <input name="limits" required defaultValue={rule.limits.map((reading) => reading.limit).join(", ")} placeholder="200/min, 5000/day, or unlimited" autoFocus />
      </label>
      <Lasts>until the override is removed</Lasts>
    </Dialog>
  );
}

function Block({ fields, about, close, done }: { fields: Record<string, string>; about: string; close: () => void; done: (text: string) => void }) {
  const names = Object.keys(fields);
  const shown = names.length ? names.map((name) => `${name}=${fields[name]}`).join(", ") : about;
  const run = async (values: FormData) => {
    const whom = names.length ? { fields } : { target: about };
    const lasts = String(values.get("for"));
    const reason = String(values.get("reason")).trim();
    await call("POST", "bans", { ...whom, ...(lasts && { for: lasts }), ...(reason && { reason }), public: values.get("public") !== null });
    done(`${shown} is blocked.`);
  };
  return (
    <Dialog title="Block" action="Block" run={run} close={close}>
      <p>
        <Text>{shown}</Text> is blocked with 403, whatever the policy.
      </p>
      <Lasts>until it is removed</Lasts>
      <label>
        Reason
        <input name="reason" maxLength={200} />
      </label>
      <label class="row">
        <input type="checkbox" name="public" /> Show the reason to the client
      </label>
    </Dialog>
  );
}

/** The latest decisions about the key, in each form that rules have of it. */
function useDecisions(about: string, known: KeyShown | undefined): Decision[] {
  const [rows, setRows] = useState<Decision[]>([]);
  const keys = [...new Set([about, ...(known?.rules.map((rule) => rule.key) ?? [])])].filter(Boolean).slice(0, 4);
  const joined = keys.join("\n");
  useEffect(() => {
    let current = true;
    const load = async () => {
      if (document.hidden) return;
      try {
        const found = await Promise.all(keys.map((key) => get<{ decisions: Decision[] }>(query("decisions", { key, limit: 50 }))));
        const all = found.flatMap((one) => one.decisions);
        const unique = [...new Map(all.map((one) => [`${one.at} ${one.id} ${one.policy}`, one])).values()];
        if (current) setRows(unique.sort((one, two) => two.at.localeCompare(one.at)).slice(0, 50));
      } catch {
        // The calls for the counts tell what is wrong.
      }
    };
    void load();
    const timer = window.setInterval(() => void load(), 5000);
    return () => {
      current = false;
      window.clearInterval(timer);
    };
  }, [joined]);
  return rows;
}
