// A rule as it stands in a configuration file. What a file cannot say is said in a comment.

import { escaped } from "./words";

/** A rule as `GET /api/v1/counters` shows it. */
export interface Configured {
  code?: string;
  by: string[];
  limits: string[];
  count_rows?: { in: string; query: string; at_most: number; reserve: string | null; cache: string; timeout: string };
  overrides: Record<string, string[]>;
  override_ends?: Record<string, { at: string }>;
  on_exceed: string;
  on_outage: string;
  ban?: string;
  count_when?: string;
  count?: string;
  enabled: boolean;
  secret: boolean;
}

export function yaml(name: string, rule: Configured): string {
  const lines = ["rules:", `  ${text(name)}:`];
  const set = (member: string, value: string) => lines.push(`    ${member}: ${value}`);
  if (rule.code) set("code", text(rule.code));
  if (rule.by.length) set("by", list(rule.by));
  if (rule.count_rows) lines.push("    count_rows:", ...rows(rule.count_rows));
  else set("limits", list(rule.limits));
  lines.push(...overrides(rule));
  if (rule.on_exceed !== "reject") set("on_exceed", exceeded(rule.on_exceed));
  set("on_outage", text(rule.on_outage));
  if (rule.ban) set("ban", text(rule.ban));
  if (rule.count_when) set("count_when", text(rule.count_when));
  if (rule.count) set("count", text(rule.count));
  if (!rule.enabled) set("enabled", "false");
  // A guard hides the keys of its ladder unless the file says otherwise.
  if (rule.secret || rule.limits.some((limit) => limit.startsWith("ladder"))) set("secret", String(rule.secret));
  return `${lines.join("\n")}\n`;
}

function rows({ reserve, ...rows }: NonNullable<Configured["count_rows"]>): string[] {
  const members = Object.entries(reserve ? { ...rows, reserve } : rows);
  return members.map(([member, value]) => `      ${member}: ${typeof value === "number" ? value : text(value)}`);
}

/** What happens when it is exceeded: a word, or the settings of a deferral. */
function exceeded(written: string): string {
  const [, aligned, jitter] = /^defer( aligned)?(?: jitter (.+))?$/.exec(written) ?? [];
  if (!aligned && !jitter) return text(written);
  const settings = [...(aligned ? ["aligned: true"] : []), ...(jitter ? [`jitter: ${text(jitter)}`] : [])];
  return `{ defer: { ${settings.join(", ")} } }`;
}

/** Overrides. Secret keys are not known here, and the file has no limits that end. */
function overrides(rule: Configured): string[] {
  const all = Object.entries(rule.overrides);
  if (all.length === 0) return [];
  if (rule.secret) return [`    # Left out: ${all.length} ${all.length === 1 ? "override" : "overrides"}, since the keys are secret.`];
  const [lasting, ending] = [all.filter(([key]) => !rule.override_ends?.[key]), all.filter(([key]) => rule.override_ends?.[key])];
  const line = ([key, limits]: [string, string[]]) => `${text(key)}: ${list(limits)}`;
  const kept = lasting.length ? ["    overrides:", ...lasting.map((one) => `      ${line(one)}`)] : [];
  const left = ending.map((one) => `    # Left out, since it ends at ${rule.override_ends?.[one[0]]?.at}: ${line(one)}`);
  return [...kept, ...left];
}

const list = (values: string[]) => `[${values.map(text).join(", ")}]`;

/** A plain word, or text in quotes, which is the same in JSON and in YAML. */
const text = (value: string) => (/^[a-z_][a-z0-9_./-]*( [a-z0-9_./-]+)*$/i.test(value) && !/^(true|false|yes|no|on|off|null|y|n)$/i.test(value) ? value : escaped(JSON.stringify(value)));
