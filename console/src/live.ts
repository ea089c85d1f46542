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

/** Seconds that may pass until the answer comes. */
const SPARE = 2;

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
  /** Changes with every start and end, so that an answer that comes late does nothing. */
  private generation = 0;

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
    this.generation += 1;
    this.stream?.close();
    this.stream = null;
    clearTimeout(this.timer);
  }

  /** Asks once, then opens a stream if that was not tried for a while. */
  private async ask(): Promise<void> {
    const mine = this.generation;
    let link: Link = "asking";
    try {
      const status = await get<Status>("status");
      if (mine !== this.generation) return;
      this.status = status;
      await this.catchUp(second(status.at));
    } catch {
      link = "lost";
    }
    if (mine !== this.generation) return;
    if (link === "lost" && this.link !== "lost") this.lostAt = Date.now();
    this.tell(link);
    if (link === "asking" && Date.now() >= this.nextStream) {
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
      if (this.stream !== stream) return stream.close();
      this.take(JSON.parse(event.data) as Status);
      this.tell("live");
    });
    stream.onerror = () => {
      // The browser would try again by itself, but would not tell why it failed. A stream that has worked is opened again at once.
      stream.close();
      if (this.stream !== stream) return;
      if (this.link === "live") this.nextStream = 0;
      this.close();
      void this.ask();
    };
  }

  /** Reads the seconds up to this one that are not known, at most fifteen minutes of them. */
  private async catchUp(until: number): Promise<void> {
    const missing = until - this.end;
    if (isNow(missing)) return;
    const [mine, seconds] = [this.generation, missing + SPARE];
    const known = this.end > 0 && missing > 0 && seconds < SECONDS;
    const history = await get<History>(known ? `status/history?seconds=${seconds}` : "status/history");
    if (mine !== this.generation) return;
    const newer = second(history.at) - this.end;
    // Another answer came first, or this one too late: then the next one brings everything.
    if (known && newer <= 0) return;
    if (known && newer > seconds) {
      this.end = 0;
      return;
    }
    const fresh = new Map(history.policies.map(({ policy, outcomes }) => [policy, series((outcome) => outcomes[outcome] ?? [])]));
    if (known) this.append(fresh, newer);
    else this.series = fresh;
    this.end = second(history.at);
    this.tell(this.link);
  }

  /** Adds the latest seconds to every series. */
  private append(fresh: Map<string, Series>, seconds: number): void {
    for (const policy of new Set([...this.series.keys(), ...fresh.keys()])) {
      const [before, after] = [this.series.get(policy), fresh.get(policy)];
      const values = (outcome: Outcome) => [...(before?.[outcome] ?? []), ...(after?.[outcome] ?? zeros(SECONDS)).slice(-seconds)];
      this.series.set(policy, series(values));
    }
  }

  private take(status: Status): void {
    const behind = second(status.at) - this.end;
    this.status = status;
    if (isNow(behind)) return;
    if (behind !== 1 || this.end === 0) {
      // The page or the server missed a second.
      void this.catchUp(second(status.at)).catch(() => undefined);
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

/** Whether a status is no later than what is known: it may be of the second before. */
const isNow = (behind: number) => behind <= 0 && behind >= -SPARE;

const zeros = (count: number) => new Array<number>(Math.max(0, count)).fill(0);

/** As many seconds as a chart shows, with zeros before the first. */
function series(values: (outcome: Outcome) => number[]): Series {
  const padded = (known: number[]) => [...zeros(SECONDS - known.length), ...known].slice(-SECONDS);
  return Object.fromEntries(OUTCOMES.map((outcome) => [outcome, padded(values(outcome))])) as Series;
}

export const live = new Live();

/** Renders the component again whenever the status changes. */
export function useLive(): Live {
  const [, render] = useState(0);
  useEffect(() => live.listen(() => render((count) => count + 1)), []);
  return live;
}
