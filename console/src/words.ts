// Values as text.

/** Characters that are invisible or change the direction of the text around them. */
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** Text of strangers, with every hidden character written out. */
export const plain = (text: string) =>
  text.replace(HIDDEN, (one) => `\\u{${one.codePointAt(0)?.toString(16)}}`);

/** The same in a quoted text of JSON or YAML. */
export const escaped = (quoted: string) =>
  quoted.replace(HIDDEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** A part of an address, decoded. A lone percent sign stays as it was typed. */
export function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const number = (value: number) => grouped.format(value);

/** A rate per second, with as many digits as help. */
export function rate(value: number): string {
  if (value === 0) return "0";
  if (value < 0.1) return value.toFixed(2);
  return value < 10 ? value.toFixed(1).replace(/\.0$/, "") : number(value);
}

export function percent(share: number): string {
  if (share === 0) return "0 %";
  return share < 0.001 ? "< 0.1 %" : share < 0.1 ? `${(share * 100).toFixed(1)} %` : `${Math.round(share * 100)} %`;
}

/** A span in its two largest units. */
export function span(ms: number): string {
  const seconds = Math.ceil(ms / 1000);
  const units: [string, number][] = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const at = units.findIndex(([, size]) => seconds >= size);
  if (at < 0) return "0s";
  const [unit, size] = units[at]!;
  const next = units[at + 1];
  const rest = next ? Math.floor((seconds % size) / next[1]) : 0;
  return `${Math.floor(seconds / size)}${unit}${rest ? ` ${rest}${next![0]}` : ""}`;
}

const two = (value: number) => String(value).padStart(2, "0");

/** The time of day here, with the date if it is another day. */
export function moment(text: string): string {
  const then = new Date(text);
  const time = `${two(then.getHours())}:${two(then.getMinutes())}:${two(then.getSeconds())}`;
  const date = `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())}`;
  return then.toDateString() === new Date().toDateString() ? time : `${date} ${time}`;
}

export const clock = (unix: number) => moment(new Date(unix * 1000).toISOString());

/** How long ago, or until when. */
export function ago(text: string): string {
  const ms = Date.now() - Date.parse(text);
  if (ms < 1500 && ms > -1500) return "now";
  return ms > 0 ? `${span(ms)} ago` : `in ${span(-ms)}`;
}

export const VERDICTS: Record<string, string> = {
  allow: "allowed",
  deny: "denied",
  wait: "waited",
  defer: "deferred",
  blocked: "blocked",
  observe: "observed",
};

const REASONS: Record<string, string> = {
  timeout: "the store did not answer in time",
  unreachable: "the store could not be reached",
  open: "the circuit breaker was open after store failures",
  full: "the store was full",
  forbidden: "the store refused the call",
  damaged: "the store returned damaged data",
  busy: "the store was busy",
  uncounted: "rows could not be counted",
};
export const reason = (name: string) => REASONS[name] ?? name;
