// Pieces that several views use.

import type { ComponentChildren } from "preact";
import { useCallback, useContext, useEffect, useRef, useState } from "preact/hooks";
import { createContext } from "preact";
import { Refused, type Session, get } from "./api";
import { ago, moment, number, percent, plain, span } from "./words";
import type { Ban, Decision, Reading } from "./api";
import { VERDICTS, reason } from "./words";

export const SessionContext = createContext<Session | null>(null);

export const isAdmin = () => useContext(SessionContext)?.role === "admin";

/** The tenant that the key belongs to. Such a key sees only what carries the tenant, and changes no limits and lists. */
export const useTenant = () => useContext(SessionContext)?.tenant ?? null;

/** Why the key may not change limits and lists; undefined if it may. */
export const useRefusal = () => {
  const [admin, tenant] = [isAdmin(), useTenant()];
  if (!admin) return NEEDS_ADMIN;
  return tenant === null ? undefined : "This needs a key without a tenant.";
};

/** The address of a view. */
export const link = (view: string, ...parts: string[]) => `#/${[view, ...parts.map(encodeURIComponent)].join("/")}`;

/** Untrusted text; it cannot affect the text around it. */
export function Text({ children }: { children: string | null | undefined }) {
  const text = plain(children ?? "–");
  return (
    <bdi class="text" title={text.length > 60 ? text.slice(0, 2000) : undefined}>
      {pieces(text).map((piece, at) => (
        <>
          {at > 0 && <wbr />}
          {piece.length > LONG ? <span class="long">{piece}</span> : piece}
        </>
      ))}
    </bdi>
  );
}

/** A longer part of a text may break anywhere, so that it does not widen the page. */
const LONG = 20;
/** More parts are not told apart. */
const MOST_PIECES = 64;

/** The parts of a text between which a line may break: after each separator. */
function pieces(text: string): string[] {
  const all = text.match(/[^._/:@,;=&?+\s-]*[._/:@,;=&?+\s-]*/g)?.filter((piece) => piece !== "") ?? [];
  return all.length > MOST_PIECES ? [...all.slice(0, MOST_PIECES), all.slice(MOST_PIECES).join("")] : all;
}

export const KeyLink = ({ children }: { children: string }) => (
  <a href={link("key", children)}>
    <Text>{children}</Text>
  </a>
);

export const When = ({ children }: { children: string | null | undefined }) =>
  children ? (
    <time dateTime={children} title={children}>
      {ago(children)}
    </time>
  ) : (
    <span class="dim">never</span>
  );

export const Moment = ({ children }: { children: string }) => (
  <time dateTime={children} title={`${children}, ${ago(children)}`}>
    {moment(children)}
  </time>
);

export const Verdict = ({ children }: { children: string }) => (
  <span class={`verdict ${children}`}>{VERDICTS[children] ?? children}</span>
);

export const Notice = ({ tone, children }: { tone: "bad" | "good" | "plain"; children: ComponentChildren }) => (
  <p class={`notice ${tone}`} role={tone === "bad" ? "alert" : "status"}>
    {children}
  </p>
);

interface Column<T> {
  name: string;
  /** Numbers are aligned at their right. */
  right?: boolean;
  cell: (row: T) => ComponentChildren;
}

export function Table<T>({ columns, rows, none, id, stacks }: {
  columns: Column<T>[];
  rows: T[];
  none: string;
  id: (row: T) => string;
  /** Whether each row becomes a list of its cells on a narrow screen. */
  stacks?: boolean;
}) {
  if (rows.length === 0) return <p class="dim none">{none}</p>;
  return (
    <div class={stacks ? "scroll stacks" : "scroll"} tabIndex={-1}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.name} class={column.right ? "right" : undefined}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)}>
              {columns.map((column) => (
                <td key={column.name} class={column.right ? "right" : undefined} data-name={column.name}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** How much of a limit is used. */
export function Gauge({ reading }: { reading: Reading }) {
  const share = reading.capacity > 0 ? Math.min(1, reading.used / reading.capacity) : 1;
  const tone = reading.remaining === 0 ? "full" : share > 0.8 ? "near" : "";
  return (
    <div class="gauge">
      <span class="gauge-limit">
        <Text>{reading.limit}</Text>
      </span>
      <svg viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label={`${percent(share)} used`}>
        <rect class="track" width="100" height="8" />
        <rect class={`fill ${tone}`} width={share * 100} height="8" />
      </svg>
      <span class="gauge-count">
        {number(reading.used)} of {number(reading.capacity)} used
      </span>
      <span class="dim gauge-reset">
        {reading.used === 0 ? "unused" : reading.reset_after_ms === null ? "until released" : `resets in ${span(reading.reset_after_ms)}`}
      </span>
    </div>
  );
}

/** Why it was decided so, in one sentence. */
export function why(decision: Decision): string {
  if (decision.banned_for_ms !== undefined) return `rule ${decision.rule} blocked the key for ${span(decision.banned_for_ms)}`;
  if (decision.locked_for_ms) return `a ladder of rule ${decision.rule} locked the key for ${span(decision.locked_for_ms)}`;
  if (decision.listing) return `on the blocklist: ${decision.listing.target}`;
  const without = decision.reason ? `, without the store: ${reason(decision.reason)}` : "";
  if (decision.verdict === "allow" && decision.observed?.length) return `allowed, but over the limit of ${decision.observed.join(", ")}, which only observes`;
  if (decision.verdict === "allow") return `within all limits${without}`;
  return `over the limit of rule ${decision.rule ?? "–"}${without}`;
}

export const Decisions = ({ rows, none }: { rows: Decision[]; none: string }) => (
  <Table
    none={none}
    rows={rows}
    id={(row) => `${row.at} ${row.id} ${row.policy} ${row.key}`}
    columns={[
      { name: "at", cell: (row) => <Moment>{row.at}</Moment> },
      { name: "verdict", cell: (row) => <Verdict>{row.listing && row.verdict === "deny" ? "blocked" : row.verdict}</Verdict> },
      { name: "policy", cell: (row) => <Text>{row.policy}</Text> },
      { name: "key", cell: (row) => (row.key ? <KeyLink>{row.key}</KeyLink> : "–") },
      { name: "why", cell: (row) => <Text>{why(row)}</Text> },
      { name: "retry in", right: true, cell: (row) => (row.retry_after_ms === null ? "–" : span(row.retry_after_ms)) },
      { name: "id", cell: (row) => (row.id ? <a href={link("decision", row.id)}><Text>{row.id}</Text></a> : "–") },
    ]}
  />
);

export const Listings = ({ rows, none, onRemove }: { rows: Ban[]; none: string; onRemove: (ban: Ban) => void }) => {
  const refusal = useRefusal();
  return (
    <Table
      none={none}
      rows={rows}
      id={(row) => row.target}
      columns={[
        { name: "target", cell: (row) => <Text>{row.target}</Text> },
        { name: "kind", cell: (row) => <span class={`verdict ${row.kind === "block" ? "deny" : "allow"}`}>{row.kind}</span> },
        { name: "reason", cell: (row) => <Text>{row.reason || "–"}</Text> },
        { name: "set by", cell: (row) => <Text>{row.author}</Text> },
        { name: "until", cell: (row) => (row.until ? <When>{row.until}</When> : "no end") },
        {
          name: "",
          right: true,
          cell: (row) =>
            row.author === "configuration" ? (
              <span class="dim">in the file</span>
            ) : (
              <>
                <button type="button" disabled={refusal !== undefined} title={refusal} onClick={() => onRemove(row)}>
                  {row.kind === "block" ? "Unblock" : "Remove"}
                </button>
                <WhyNot />
              </>
            ),
        },
      ]}
    />
  );
};

export const NEEDS_ADMIN = "This needs a key with the role admin.";

/** Says beside buttons why they are disabled. */
export const NeedsAdmin = () => (isAdmin() ? null : <span class="dim small why-not">needs the role admin</span>);

/** The same beside buttons that a key with a tenant may not use either. */
export const WhyNot = () => (useRefusal() === undefined ? null : isAdmin() ? <span class="dim small why-not">needs a key without a tenant</span> : <NeedsAdmin />);

/** The answer to a call, and how to call again. */
export function useCall<T>(path: string | null, everyMs?: number) {
  const [answer, setAnswer] = useState<{ path: string; data?: T; error?: string; status?: number } | null>(null);
  const again = useRef(0);
  const load = useCallback(async () => {
    if (path === null) return;
    const mine = ++again.current;
    try {
      const data = await get<T>(path);
      if (mine === again.current) setAnswer({ path, data });
    } catch (error) {
      if (mine !== again.current) return;
      const status = error instanceof Refused ? error.status : undefined;
      // What was known stays visible while the server does not answer.
      setAnswer((old) => ({ path, data: old?.path === path && status === undefined ? old.data : undefined, error: message(error), status }));
    }
  }, [path]);
  useEffect(() => {
    void load();
    if (!everyMs) return;
    const timer = window.setInterval(() => {
      if (!document.hidden) void load();
    }, everyMs);
    return () => window.clearInterval(timer);
  }, [load, everyMs]);
  const current = answer?.path === path ? answer : null;
  return { data: current?.data, error: current?.error, status: current?.status, load };
}

export const message = (error: unknown) => (error instanceof Error ? error.message : String(error));

/** A dialog with fields and one action. It closes when the action has succeeded. */
export function Dialog({ title, action, run, close, children }: {
  title: string;
  action: string;
  run: (values: FormData) => Promise<void>;
  close: () => void;
  children: ComponentChildren;
}) {
  const box = useRef<HTMLDialogElement>(null);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    box.current?.showModal();
  }, []);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    setBusy(true);
    setError("");
    try {
      await run(new FormData(event.currentTarget as HTMLFormElement));
      close();
    } catch (problem) {
      setError(message(problem));
      setBusy(false);
    }
  };
  return (
    <dialog ref={box} onClose={close} aria-label={title}>
      <form onSubmit={submit}>
        <h2>{title}</h2>
        {children}
        {error && <Notice tone="bad">{error}</Notice>}
        <div class="buttons">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={busy}>
            {action}
          </button>
        </div>
      </form>
    </dialog>
  );
}

/** Fields of a dialog: how long something lasts. */
export const Lasts = ({ children }: { children: string }) => (
  <label>
    For
    <select name="for">
      <option value="1h">1 hour</option>
      <option value="1d">1 day</option>
      <option value="7d">7 days</option>
      <option value="30d">30 days</option>
      <option value="">{children}</option>
    </select>
  </label>
);
