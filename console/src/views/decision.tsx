// One decision and its reason: by the token or link in the refusal, or by its correlation id.

import type { ComponentChild } from "preact";
import type { Decision, DecisionDetail, Reading } from "../api";
import { path, query } from "../api";
import { Decisions, Gauge, KeyLink, Moment, Notice, Text, Verdict, When, link, useCall, why } from "../parts";
import { decoded, reason, span } from "../words";

/** No correlation id is longer. */
const LONGEST_ID = 128;

/** Whether a text may be a token. It may be a correlation id too, unless it is too long for that: the server is asked for both. */
const mayBeToken = (text: string) => /^[\w-]+$/.test(text);

/** The id or token in what was typed. A link may be pasted too: of this page, or another one that ends with a token. */
function typed(text: string): string {
  const [, here] = /#\/decision\/(.*)$/.exec(text) ?? [];
  if (here !== undefined) return decoded(here);
  return /^https?:/.test(text) ? (/[\w-]*$/.exec(text)?.[0] ?? "") : text;
}

export function DecisionView({ about }: { about: string }) {
  const mayBeId = about.length <= LONGEST_ID;
  const found = useCall<{ decisions: Decision[] }>(about && mayBeId ? query("decisions", { id: about }) : null);
  const noId = !mayBeId || found.data?.decisions.length === 0;
  const latest = useCall<{ decisions: Decision[] }>(about ? null : query("decisions", { verdict: "deny", limit: 50 }), 5000);
  const find = (event: SubmitEvent) => {
    event.preventDefault();
    const id = typed(String(new FormData(event.currentTarget as HTMLFormElement).get("id") ?? "").trim());
    if (id) location.hash = link("decision", id);
  };
  return (
    <>
      <div class="title">
        <h1>Decision</h1>
      </div>
      <form class="filter" onSubmit={find}>
        <input name="id" aria-label="Correlation id or token" placeholder="correlationId, token or link of a denial" defaultValue={about} required maxLength={8192} />
        <button type="submit" class="primary">
          Find
        </button>
      </form>
      {found.error && <Notice tone="bad">{found.error}</Notice>}
      {about && noId && (mayBeToken(about) ? <Told token={about} otherwise={mayBeId ? <Unknown /> : undefined} /> : <Unknown />)}
      {found.data?.decisions.map((decision) =>
        decision.token ? <Told key={decision.token} token={decision.token} entry={decision} /> : <Entry key={`${decision.at} ${decision.policy}`} decision={decision} />,
      )}
      {!about && (
        <>
          <h2>Latest denials</h2>
          <Decisions rows={latest.data?.decisions ?? []} none="No denials in the journal." />
        </>
      )}
    </>
  );
}

const Unknown = () => (
  <Notice tone="plain">
    No decision with this id is in the journal of this node. The journal keeps the latest decisions of this node, 1000 by default; under high load it records only a part.
    Other nodes have their own.
  </Notice>
);

/** A decision with every rule, then and now; something else if this is no token. */
function Told({ token, entry, otherwise }: { token: string; entry?: Decision; otherwise?: ComponentChild }) {
  const { data, error, status } = useCall<DecisionDetail>(`decisions/${path(token)}`, 5000);
  if (status === 400 && otherwise) return <>{otherwise}</>;
  if (error && entry) return <Entry decision={entry} />;
  if (error) return <Notice tone="bad">{error}</Notice>;
  if (!data) return null;
  const blocked = data.blocked !== undefined;
  const without = data.reason ? `, without the store: ${reason(data.reason)}` : "";
  const over = data.rules.find((rule) => rule.rule === data.rule && rule.exceeded);
  const tooLarge = data.retry_after_ms === null && over?.then.some((reading) => data.cost > reading.capacity);
  const because = blocked ? `on the blocklist: ${data.blocked}` : tooLarge ? `the cost is larger than the limit of rule ${data.rule}` : data.rule ? `over the limit of rule ${data.rule}${without}` : `within all limits${without}`;
  return (
    <section class="card" aria-label="decision">
      <div class="title">
        <h3>
          <Verdict>{blocked ? "blocked" : data.verdict}</Verdict>: <Text>{because}</Text> {entry?.code && <code>{entry.code}</code>}
        </h3>
      </div>
      <p class="dim none">
        <Moment>{data.at}</Moment>, <When>{data.at}</When> · policy <Text>{data.policy}</Text> · cost {data.cost}
        {data.retry_after_ms !== null && ` · retry after ${span(data.retry_after_ms)}`} · id <Text>{data.id}</Text>
      </p>
      {entry?.listing?.reason && (
        <p class="none">
          Reason for the block: <Text>{entry.listing.reason}</Text>
        </p>
      )}
      {data.rules.map((rule) => (
        <div key={rule.rule} class="then-now">
          <h4>
            <Text>{rule.rule}</Text> <KeyLink>{rule.key}</KeyLink>
            {rule.exceeded && <span class={`count ${rule.observed ? "observe" : "deny"}`}> {rule.observed ? "would have denied" : "exceeded"}</span>}
          </h4>
          <Readings title="then" readings={rule.then} />
          {rule.now ? <Readings title="now" readings={rule.now} /> : <p class="dim none">now: unknown, since the rule is gone or the store does not answer</p>}
        </div>
      ))}
      {!data.complete && <p class="dim none">The token is too small to list all rules that applied.</p>}
    </section>
  );
}

const Readings = ({ title, readings }: { title: string; readings: Reading[] }) => (
  <div class="readings">
    <span class="dim">{title}</span>
    <div>
      {readings.map((reading) => (
        <Gauge key={reading.limit} reading={reading} />
      ))}
    </div>
  </div>
);

/** What the journal has of a decision without a token: a ban, or a lock. */
const Entry = ({ decision }: { decision: Decision }) => (
  <section class="card" aria-label="decision">
    <h3>
      <Verdict>{decision.listing && decision.verdict === "deny" ? "blocked" : decision.verdict}</Verdict>: <Text>{why(decision)}</Text>
    </h3>
    <p class="dim none">
      <Moment>{decision.at}</Moment>, <When>{decision.at}</When> · policy <Text>{decision.policy}</Text>
    </p>
    {decision.keys.map(({ rule, key }) => (
      <p class="none" key={rule}>
        <span class="dim">{rule}</span> <KeyLink>{key}</KeyLink>
      </p>
    ))}
  </section>
);
