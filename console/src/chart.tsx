// A chart of outcomes per second: stacked areas over time, with a cursor for mouse and keyboard.

import { useRef, useState } from "preact/hooks";
import type { Outcome } from "./api";
import { VERDICTS, clock, rate } from "./words";

export interface ChartSeries {
  outcome: Outcome;
  values: number[];
}

interface Props {
  title: string;
  series: ChartSeries[];
  /** What the outcomes are called here, if not as usual. */
  words?: Partial<Record<Outcome, string>>;
  /** The second of the last value. */
  end: number;
  cursor: number | null;
  onCursor: (bin: number | null) => void;
}

/** Seconds in one step of the chart. */
const BIN = 5;

const HEIGHT = 100;

export function Chart({ title, series, words, end, cursor, onCursor }: Props) {
  const [focused, setFocused] = useState(false);
  const area = useRef<HTMLDivElement>(null);
  const bins = series.map(({ outcome, values }) => ({ outcome, values: binned(values, end) }));
  const count = bins[0]?.values.length ?? 0;
  const sums = Array.from({ length: count }, (_, at) => bins.reduce((sum, one) => sum + (one.values[at] ?? 0), 0));
  const top = scale(Math.max(...sums, 0));
  const at = cursor === null ? count - 1 : Math.min(Math.max(cursor, 0), count - 1);
  const shownAt = Math.floor(end / BIN) * BIN - (count - 1 - at) * BIN;

  const move = (event: PointerEvent) => {
    const box = area.current?.getBoundingClientRect();
    if (box) onCursor(Math.floor(((event.clientX - box.left) / box.width) * count));
  };
  const key = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, PageUp: -12, PageDown: 12 };
    const step = steps[event.key];
    if (step !== undefined) {
      event.preventDefault();
      onCursor(Math.min(Math.max(at + step, 0), count - 1));
    } else if (event.key === "Escape") {
      onCursor(null);
    }
  };

  return (
    <figure class="chart">
      <figcaption>
        <b>{title}</b>
        <span class="dim">{cursor === null ? "now" : clock(shownAt)}</span>
        {bins.map(({ outcome, values }) => (
          <span class="legend" key={outcome}>
            <i class={`swatch ${outcome}`} />
            {words?.[outcome] ?? VERDICTS[outcome]} <output>{rate(values[at] ?? 0)}</output>/s
          </span>
        ))}
      </figcaption>
      <div
        class="plot"
        ref={area}
        tabIndex={0}
        role="img"
        aria-label={`${title}, the last 15 minutes. Arrow keys move the cursor.`}
        onPointerMove={move}
        onPointerLeave={() => onCursor(null)}
        onKeyDown={key}
        onFocus={() => setFocused(true)}
        onBlur={() => {
          setFocused(false);
          onCursor(null);
        }}
      >
        <svg viewBox={`0 0 ${count} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
          <path class="grid" d={`M0 0H${count}M0 ${HEIGHT / 2}H${count}`} />
          {stacked(bins.map((one) => one.values), top).map((d, index) => (
            <path class={`area ${bins[index]?.outcome}`} d={d} key={index} />
          ))}
          {(cursor !== null || focused) && <path class="cursor" d={`M${at + 0.5} 0V${HEIGHT}`} />}
        </svg>
        <span class="tick">{rate(top)}/s</span>
        <span class="tick half">{rate(top / 2)}</span>
      </div>
      <div class="axis dim">
        <span>15 min ago</span>
        <span>10</span>
        <span>5</span>
        <span>now</span>
      </div>
    </figure>
  );
}

/** A small picture of all attempts and, over them, those that were not allowed. */
export function Spark({ all, refused, end }: { all: number[]; refused: number[]; end: number }) {
  const [whole, part] = [binned(all, end), binned(refused, end)];
  const top = Math.max(...whole, 0.001);
  return (
    <svg class="spark" viewBox={`0 0 ${whole.length} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      <path class="area allow" d={stacked([whole], top)[0]} />
      <path class="area deny" d={stacked([part], top)[0]} />
    </svg>
  );
}

/** Averages over steps that start at fixed moments, so that the past does not flicker. The last step may be short. */
function binned(values: number[], end: number): number[] {
  const bins: number[] = [];
  const first = end - values.length + 1;
  let [sum, length] = [0, 0];
  values.forEach((value, at) => {
    sum += value;
    length += 1;
    if ((first + at + 1) % BIN === 0 || at === values.length - 1) {
      bins.push(sum / length);
      [sum, length] = [0, 0];
    }
  });
  return bins;
}

/** A round number at least as large as the values. */
function scale(most: number): number {
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  const steps = [1, 2, 5, 10].map((step) => step * power);
  return steps.find((step) => step >= most) ?? most;
}

/** Areas, each on top of those before it, in steps. */
function stacked(layers: number[][], top: number): string[] {
  const below = new Array<number>(layers[0]?.length ?? 0).fill(0);
  const y = (value: number) => (HEIGHT - (Math.min(value, top) / top) * HEIGHT).toFixed(1);
  return layers.map((values) => {
    let [up, down] = ["", ""];
    values.forEach((value, at) => {
      const [low, high] = [below[at] ?? 0, (below[at] ?? 0) + value];
      up += `${at ? "L" : "M"}${at} ${y(high)}H${at + 1}`;
      down = `L${at + 1} ${y(low)}H${at}${down}`;
      below[at] = high;
    });
    return values.some((value) => value > 0) ? `${up}${down}Z` : "";
  });
}
