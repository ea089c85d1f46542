// A rule as it stands in a configuration file.

/** A rule as `GET /api/v1/counters` shows it. */
export interface Configured {
  code?: string;
  by: string[];
  limits: string[];
  overrides: Record<string, string[]>;
  on_exceed: string;
  on_outage: string;
  ban?: string;
  count_when?: string;
  count?: string;
  enabled: boolean;
}

export function yaml(name: string, rule: Configured): string {
  const lines = ["rules:", `  ${text(name)}:`];
  const set = (member: string, value: string) => lines.push(`    ${member}: ${value}`);
  if (rule.code) set("code", text(rule.code));
  if (rule.by.length) set("by", list(rule.by));
  set("limits", list(rule.limits));
  const overrides = Object.entries(rule.overrides);
  if (overrides.length) {
    lines.push("    overrides:");
    for (const [key, limits] of overrides) lines.push(`      ${text(key)}: ${list(limits)}`);
  }
  if (rule.on_exceed !== "reject") set("on_exceed", text(rule.on_exceed));
  set("on_outage", text(rule.on_outage));
  if (rule.ban) set("ban", text(rule.ban));
  if (rule.count_when) set("count_when", text(rule.count_when));
  if (rule.count) set("count", text(rule.count));
  if (!rule.enabled) set("enabled", "false");
  return `${lines.join("\n")}\n`;
}

const list = (values: string[]) => `[${values.map(text).join(", ")}]`;

/** A plain word, or text in quotes, which is the same in JSON and in YAML. */
const text = (value: string) => (/^[a-z_][a-z0-9_./ -]*$/i.test(value) && !/^(true|false|yes|no|on|off|null)$/i.test(value) ? value : JSON.stringify(value));
