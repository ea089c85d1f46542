// Follows the status of the server: by server-sent events, or by asking if there is no stream. Only while the page is visible,
// since a browser has few connections for all of its tabs.

import { useEffect, useState } from "preact/hooks";
import { type History, type Outcome, OUTCOMES, type Outcomes, type Status, get } from "./api";

export const SECONDS = 900;

export type Link = "starting" | "live" | "asking" | "lost";

type Series = Record<Outcome, number[]>;

/** How often to ask without a stream, and how often to try the stream again. */
const ASK_MS = 5000;
const STREAM_MS = 30000;

export class Live {
  link: Link = "starting";
  /** Since when there is no connection, in milliseconds. */
  lostAt = 0;
  status: Status | null = null;
  /** The last second of all series. */
  end = 0;
  series = new Map<string, Series>();
  private stream: EventSource | null = null;
  private timer = 0;
  private nextStream = 0;
  private listeners = new Set<() => void>();
  private running = false;

  start(): void {
    this.running = true;
    document.addEventListener("visibilitychange", this.look);
    this.look();
  }

  stop(): void {
    this.running = false;
    document.removeEventListener("visibilitychange", this.look);
    this.close();
  }

  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private look = (): void => {
    this.close();
    if (this.running && !document.hidden) {
      this.nextStream = 0;
      void this.ask();
    }
  };

  private close(): void {
    this.stream?.close();
    this.stream = null;
    clearTimeout(this.timer);
  }

  /** Asks once, then opens a stream if that was not tried for a while. */
  private async ask(): Promise<void> {
    try {
      this.status = await get<Status>("status");
      await this.remember();
      this.tell("asking");
    } catch {
      if (this.link !== "lost") {
        this.lostAt = Date.now();
      }
      this.tell("lost");
    }
    if (!this.running || document.hidden) return;
    if (this.link === "asking" && Date.now() >= this.nextStream) {
      this.nextStream = Date.now() + STREAM_MS;
      this.follow();
    } else {
      this.timer = window.setTimeout(() => void this.ask(), ASK_MS);
    }
  }

  private follow(): void {
    const stream = new EventSource("api/v1/status/stream");
    this.stream = stream;
    stream.addEventListener("status", (event) => {
      this.take(JSON.parse(event.data) as Status);
      this.tell("live");
    });
    stream.onerror = () => {
      // The browser would try again by itself, but would not tell why it failed. A stream that has worked is opened again at once.
      if (this.link === "live") this.nextStream = 0;
      this.close();
      void this.ask();
    };
  }

  /** Reads the last fifteen minutes. */
  private async remember(): Promise<void> {
    const history = await get<History>("status/history");
    this.end = second(history.at);
    this.series = new Map(
      history.policies.map(({ policy, outcomes }) => [policy, series((outcome) => outcomes[outcome] ?? [])]),
    );
    this.tell(this.link);
  }

  private take(status: Status): void {
    const behind = second(status.at) - this.end;
    this.status = status;
    if (this.end === 0 || behind === 0) return;
    if (behind !== 1) {
      // The page or the server missed a second.
      void this.remember().catch(() => undefined);
      return;
    }
    this.end += 1;
    for (const { policy } of status.policies) {
      if (!this.series.has(policy)) this.series.set(policy, series(() => []));
    }
    const now = new Map<string, Outcomes>(status.policies.map((one) => [one.policy, one.second]));
    for (const [policy, outcomes] of this.series) {
      for (const outcome of OUTCOMES) {
        outcomes[outcome].shift();
        outcomes[outcome].push(now.get(policy)?.[outcome] ?? 0);
      }
    }
  }

  private tell(link: Link): void {
    this.link = link;
    for (const listener of this.listeners) listener();
  }
}

const second = (text: string) => Math.floor(Date.parse(text) / 1000);

/** As many seconds as a chart shows, with zeros before the first. */
function series(values: (outcome: Outcome) => number[]): Series {
  const padded = (known: number[]) => [...new Array<number>(Math.max(0, SECONDS - known.length)).fill(0), ...known];
  return Object.fromEntries(OUTCOMES.map((outcome) => [outcome, padded(values(outcome)).slice(-SECONDS)])) as Series;
}

export const live = new Live();

/** Renders the component again whenever the status changes. */
export function useLive(): Live {
  const [, render] = useState(0);
  useEffect(() => live.listen(() => render((count) => count + 1)), []);
  return live;
}
