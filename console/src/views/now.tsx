// What happens now: rates by policy, the most denied and the busiest keys.

import { useState } from "preact/hooks";
import { OUTCOMES, type Outcome, type Outcomes, type Ranked } from "../api";
import { Chart, Spark } from "../chart";
import { SECONDS, type Live, useLive } from "../live";
import { KeyLink, Table, Text, When } from "../parts";
import { number, percent, rate, span } from "../words";

const REFUSED: Outcome[] = ["deny", "defer", "wait", "blocked"];
const ATTEMPTS: Outcome[] = ["allow", "deny", "defer", "wait", "blocked"];

export function Now() {
  const now = useLive();
  const [chosen, setChosen] = useState<string | null>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const policies = [...now.series.keys()].sort();
  const policy = chosen !== null && now.series.has(chosen) ? chosen : null;
  const shown = (outcomes: Outcome[]) =>
    outcomes.map((outcome) => ({ outcome, values: sum(now, policy === null ? policies : [policy], [outcome]) }));
  const allowed = sum(now, policy === null ? policies : [policy], ["allow"]);
  const observed = sum(now, policy === null ? policies : [policy], ["observe"]);
  // An observed attempt is among the allowed ones. Shown apart from them, it is counted once.
  const passed = [
    { outcome: "allow" as Outcome, values: allowed.map((all, at) => Math.max(0, all - (observed[at] ?? 0))) },
    { outcome: "observe" as Outcome, values: observed },
  ];
  const minute = new Map(now.status?.policies.map((one) => [one.policy, one]));
  return (
    <>
      <div class="title">
        <h1>Now</h1>
        <label>
          <span class="dim">Policy</span>
          <select value={policy ?? ""} onChange={(event) => setChosen(event.currentTarget.value || null)}>
            <option value="">all policies</option>
            {policies.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
      </div>
      <Chart title="Allowed" series={passed} words={{ allow: "within the limits", observe: "over an observed limit" }} end={now.end} cursor={cursor} onCursor={setCursor} />
      <Chart title="Not allowed" series={shown(REFUSED)} end={now.end} cursor={cursor} onCursor={setCursor} />
      <h2>Policies</h2>
      <Table
        none="No attempts in the last 15 minutes."
        rows={policies}
        id={(name) => name}
        columns={[
          {
            name: "policy",
            cell: (name) => (
              <button type="button" class="plain" aria-pressed={policy === name} onClick={() => setChosen(policy === name ? null : name)}>
                <Text>{name}</Text>
              </button>
            ),
          },
          { name: "15 minutes", cell: (name) => <Spark all={sum(now, [name], ATTEMPTS)} refused={sum(now, [name], ATTEMPTS.slice(1))} end={now.end} /> },
          { name: "attempts/s", right: true, cell: (name) => rate(ATTEMPTS.reduce((all, outcome) => all + (minute.get(name)?.minute[outcome] ?? 0), 0) / 60) },
          ...(["allow", "observe", "deny", "defer", "wait", "blocked"] as Outcome[]).map((outcome) => ({
            name: { allow: "allowed/s", deny: "denied/s", defer: "deferred/s", wait: "told to wait/s", blocked: "blocked/s", observe: "of these observed/s" }[outcome],
            right: true,
            cell: (name: string) => per(minute.get(name)?.minute, outcome),
          })),
          { name: "waiting", right: true, cell: (name) => number(minute.get(name)?.waiting ?? 0) },
        ]}
      />
      <p class="dim small">Rates are averages of the last minute on this node. Allowed, denied, deferred, told to wait and blocked add up to the attempts; the observed ones are among the allowed.</p>
      <div class="columns">
        <Ranking title="Most denied keys" count="denied" rows={now.status?.offenders ?? []} none="No key was denied." value={(row) => row.denied} />
        <section>
          <h2>Nearest to their limits</h2>
          <Table
            none="No key is near a limit."
            rows={now.status?.nearest ?? []}
            id={(row) => `${row.rule} ${row.key}`}
            columns={[
              { name: "rule", cell: (row) => <Text>{row.rule}</Text> },
              { name: "key", cell: (row) => <KeyLink>{row.key}</KeyLink> },
              { name: "limit", cell: (row) => <Text>{row.limit}</Text> },
              { name: "used", right: true, cell: (row) => <span class={row.used >= row.capacity ? "count deny" : ""}>{percent(row.share)}</span> },
              { name: "resets", right: true, cell: (row) => (row.reset_after_ms === null ? "–" : `in ${span(row.reset_after_ms)}`) },
            ]}
          />
        </section>
        <Ranking title="Would have been denied" count="times" rows={now.status?.observed ?? []} none="No observed rule was exceeded." value={(row) => row.would_deny} />
        <Ranking title="Busiest keys" count="sampled attempts" rows={now.status?.busiest ?? []} none="No key was sampled." value={(row) => row.seen} />
      </div>
    </>
  );
}

function Ranking({ title, count, rows, none, value }: { title: string; count: string; rows: Ranked[]; none: string; value: (row: Ranked) => number | undefined }) {
  return (
    <section>
      <h2>{title}</h2>
      <Table
        none={none}
        rows={rows}
        id={(row) => `${row.rule} ${row.key}`}
        columns={[
          { name: "rule", cell: (row) => <Text>{row.rule}</Text> },
          { name: "key", cell: (row) => <KeyLink>{row.key}</KeyLink> },
          { name: count, right: true, cell: (row) => number(value(row) ?? 0) },
          { name: "last", right: true, cell: (row) => <When>{row.last}</When> },
        ]}
      />
    </section>
  );
}

/** An average of the last minute. */
const per = (minute: Outcomes | undefined, outcome: Outcome) => {
  const value = (minute?.[outcome] ?? 0) / 60;
  return <span class={value > 0 && outcome !== "allow" ? `count ${outcome}` : value > 0 ? "" : "dim"}>{rate(value)}</span>;
};

function sum(now: Live, policies: string[], outcomes: readonly Outcome[]): number[] {
  const total = new Array<number>(SECONDS).fill(0);
  for (const name of policies) {
    for (const outcome of OUTCOMES.filter((one) => outcomes.includes(one))) {
      now.series.get(name)?.[outcome].forEach((value, at) => {
        total[at] = (total[at] ?? 0) + value;
      });
    }
  }
  return total;
}
