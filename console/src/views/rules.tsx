// The rules in force: how hard each is pressed, and its configuration to copy. Nothing can be changed here.

import { useState } from "preact/hooks";
import { type RuleRow, get } from "../api";
import { Notice, Text, Table, When, message, useCall } from "../parts";
import { number, percent } from "../words";
import { type Configured, yaml } from "../yaml";

/** Unknown for a rule of policies that have no counters of their own. */
const Pressure = ({ row }: { row: RuleRow }) => {
  if (row.pressure === null) return <span class="dim">–</span>;
  return <span class={row.pressure > 0 ? `count ${row.observed ? "observe" : "deny"}` : "dim"}>{percent(row.pressure)}</span>;
};

export function Rules() {
  const { data, error } = useCall<{ enabled: boolean; rules: RuleRow[] }>("rules", 5000);
  const [shown, setShown] = useState<{ rule: string; text: string } | null>(null);
  const [said, setSaid] = useState("");
  const [filter, setFilter] = useState("");
  const copy = async (row: RuleRow) => {
    try {
      const all = await get<{ rules: Record<string, Configured> }>("counters");
      const configured = all.rules[row.rule];
      if (!configured) return setSaid(`There is no rule ${row.rule} any more.`);
      const text = yaml(row.rule, configured);
      setShown({ rule: row.rule, text });
      await navigator.clipboard?.writeText(text);
      setSaid(navigator.clipboard ? `${row.rule} is copied.` : "Copy the text below.");
    } catch (problem) {
      setSaid(problem instanceof DOMException ? "Copy the text below." : message(problem));
    }
  };
  const rows = (data?.rules ?? []).filter((row) => row.rule.includes(filter)).sort((one, two) => (two.pressure ?? -1) - (one.pressure ?? -1) || one.rule.localeCompare(two.rule));
  return (
    <>
      <div class="title">
        <h1>Rules</h1>
        <input type="search" aria-label="Filter rules" placeholder="filter" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
      </div>
      <p class="dim small">Pressure: the share of its policies' attempts that the rule denied, deferred or delayed (or would have, if it only observes), in the last 15 minutes on this node.</p>
      {error && <Notice tone="bad">{error}</Notice>}
      {data?.enabled === false && <Notice tone="bad">Limits are switched off: <code>enabled: false</code>.</Notice>}
      {said && <Notice tone="plain">{said}</Notice>}
      {shown && <pre aria-label={`rule ${shown.rule} as YAML`}>{shown.text}</pre>}
      <Table
        stacks
        none={data ? "No rules." : "…"}
        rows={rows.slice(0, 500)}
        id={(row) => row.rule}
        columns={[
          { name: "rule", cell: (row) => <><Text>{row.rule}</Text>{!row.enabled && <span class="dim"> off</span>}</> },
          { name: "by", cell: (row) => <Text>{row.by.join(", ") || "all clients together"}</Text> },
          { name: "limits", cell: (row) => <Text>{row.limits.join(", ") + (row.overrides ? ` and ${number(row.overrides)} ${row.overrides === 1 ? "override" : "overrides"}` : "")}</Text> },
          { name: "mode", cell: (row) => <span class={row.observed ? "count observe" : ""}>{row.observed ? "observed" : row.on_exceed}</span> },
          { name: "pressure", right: true, cell: (row) => <Pressure row={row} /> },
          { name: "enforced", right: true, cell: (row) => number(row.recent.deny + row.recent.defer + row.recent.wait) },
          { name: "observed", right: true, cell: (row) => number(row.recent.observe) },
          { name: "used", right: true, cell: (row) => (row.used === null ? "–" : percent(row.used)) },
          { name: "last exceeded", right: true, cell: (row) => <When>{row.observed ? row.last_observed : row.last_denied}</When> },
          { name: "", right: true, cell: (row) => <button type="button" onClick={() => void copy(row)}>Copy as YAML</button> },
        ]}
      />
    </>
  );
}
