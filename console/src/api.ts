// Calls the API beside this page. Every path is relative, so that the page works below any base path.

export type Role = "check" | "read" | "admin";

export interface Session {
  key: string | null;
  role: Role;
  tenant: string | null;
  until: string | null;
  relay: boolean;
  version: string;
}

export const OUTCOMES = ["allow", "deny", "defer", "wait", "blocked", "observe"] as const;
export type Outcome = (typeof OUTCOMES)[number];
export type Outcomes = Record<Outcome, number>;

export interface Ranked {
  rule: string;
  key: string;
  last: string;
  denied?: number;
  seen?: number;
  would_deny?: number;
}

export interface Near {
  rule: string;
  key: string;
  limit: string;
  used: number;
  capacity: number;
  share: number;
  reset_after_ms: number | null;
}

export interface Status {
  at: string;
  store: { shared: boolean; state: "up" | "degraded"; reason: string | null; cause: string | null };
  relay_fault: string | null;
  policies: { policy: string; waiting: number; second: Outcomes; minute: Outcomes }[];
  waiting: number;
  offenders: Ranked[];
  busiest: Ranked[];
  observed: Ranked[];
  nearest: Near[];
  pages: number;
}

export interface History {
  at: string;
  policies: { policy: string; outcomes: Partial<Record<Outcome, number[]>> }[];
}

export interface Reading {
  limit: string;
  capacity: number;
  remaining: number;
  used: number;
  reset_after_ms: number | null;
  reset_at: string | null;
}

export interface KeyRule {
  rule: string;
  key: string;
  overridden: boolean;
  override_ends?: { at: string; after_ms: number };
  limits: Reading[];
  fields: Record<string, string>;
  /** Whether `key` is only a pseudonym. */
  secret: boolean;
  on_exceed: string;
  enabled: boolean;
}

export interface KeyShown {
  rules: KeyRule[];
  left_out: number;
  /** Whether the text that was looked up is the pseudonym of a secret key. */
  pseudonym: boolean;
}

export interface Ban {
  target: string;
  kind: "block" | "allow";
  reason: string;
  public: boolean;
  author: string;
  since: string | null;
  until: string | null;
}

export interface Decision {
  at: string;
  policy: string;
  verdict: "allow" | "wait" | "defer" | "deny";
  origin: string;
  reason?: string;
  rule: string | null;
  code?: string;
  key: string | null;
  keys: { rule: string; key: string }[];
  observed?: string[];
  id: string | null;
  token?: string;
  listing?: Ban;
  cost: number;
  retry_after_ms: number | null;
  banned_for_ms?: number;
  locked_for_ms?: number;
}

/** A decision by its token: what each rule read then, and reads now. */
export interface DecisionDetail {
  at: string;
  policy: string;
  verdict: "allow" | "wait" | "defer" | "deny";
  origin: string;
  reason?: string;
  rule: string | null;
  blocked?: string;
  id: string;
  cost: number;
  retry_after_ms: number | null;
  rules: { rule: string; key: string; observed: boolean; exceeded: boolean; then: Reading[]; now: Reading[] | null }[];
  complete: boolean;
}

export interface RuleRow {
  rule: string;
  policies: string[];
  by: string[];
  limits: string[];
  overrides: number;
  on_exceed: string;
  observed: boolean;
  enabled: boolean;
  attempts: number | null;
  recent: { deny: number; wait: number; defer: number; observe: number };
  pressure: number | null;
  last_denied: string | null;
  last_observed: string | null;
  used: number | null;
}

/** An error response. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    detail: string,
  ) {
    super(detail);
  }
}

/** The server cannot be reached. */
export class Unreachable extends Error {
  constructor() {
    super("The server does not answer.");
  }
}

let ended: (message: string) => void = () => {};

/** Sets what happens when the session has ended. */
export function onSignedOut(then: (message: string) => void): void {
  ended = then;
}

export async function call<T>(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
  const request: RequestInit = { method, headers, cache: "no-store", credentials: "same-origin" };
  if (body !== undefined) {
    request.body = JSON.stringify(body);
    request.headers = { ...headers, "Content-Type": "application/json" };
  }
  let response: Response;
  let text: string;
  try {
    response = await fetch(`api/v1/${path}`, request);
    text = await response.text();
  } catch {
    throw new Unreachable();
  }
  const answer = read(text);
  if (response.ok) {
    return answer as T;
  }
  const detail = (answer as { detail?: string } | null)?.detail ?? `The server answers with status ${response.status}.`;
  if (response.status === 401 && path !== "session") {
    ended(detail);
  }
  throw new Refused(response.status, detail);
}

export const get = <T>(path: string) => call<T>("GET", path);

/** A path with a query of those values that are there. */
export function query(path: string, values: Record<string, string | number | undefined>): string {
  const members = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
  const text = members.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`).join("&");
  return text ? `${path}?${text}` : path;
}

/** Parts of a path. */
export const path = (...parts: string[]) => parts.map(encodeURIComponent).join("/");

function read(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
