// Charts of the last minutes or hours: a title, the present value, axes, and what was at the time that is pointed at.
import uPlot from "./vendor/uplot.js";
import { h, moment, none, roundTime, seconds, text } from "./dom.js";
import { withGaps } from "./series.js";

const probe = h("span", { hidden: true });
const FONT = "11px system-ui, sans-serif";
const STEPS = [60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600];
const SHORT_STEPS = [20, 30, 60];
const SHORT_SECONDS = 120;
const TIME_STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000];
const COUNT_STEPS = Array.from({ length: 36 }, (_, index) => [1, 2, 5][index % 3] * 10 ** Math.floor(index / 3));
const SYNC = uPlot.sync("headrace");

/** The colour that a variable of the style has in the present theme. */
function colour(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

const faded = (rgb, alpha) => rgb.replace(/^rgb\(([^)]+)\)$/, `rgba($1, ${alpha})`);
const clock = (value, spare) => new Date(value * 1000).toLocaleTimeString("en-GB", spare ? { hour: "2-digit", minute: "2-digit" } : { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const SPANS = [[60, "1 min"], [300, "5 min"], [900, "15 min"], [10800, "3 h"], [86400, "1 day"]];

let shownSeconds = 300;
const tiles = new Set();
const watchers = new Set();

/** How many seconds charts show. */
export const shownSpan = () => shownSeconds;

/** Call `watch` when charts are to show another span; return what ends that. */
export function onSpan(watch) {
  watchers.add(watch);
  return () => watchers.delete(watch);
}

/** Show the last `value` seconds in all charts. */
export function showLast(value) {
  if (value === shownSeconds) return;
  shownSeconds = value;
  for (const each of tiles) each();
  for (const each of watchers) each();
}

/**
 * Make a tile with a chart. `format` writes a value; `least` is the least height of the scale; with `bars`, each
 * value is one, and nothing is drawn where there is none; with `time`, values are seconds, and the scale has round times.
 *
 * `set(at, values, step)` draws values over moments in Unix seconds that lie `step` seconds apart; null leaves a gap.
 */
export function tile(label, { format, unit = "", tone = "--accent", least = 1, meaning = null, bars = false, time = false, present = null }) {
  const value = h("span", {}, none);
  const small = h("small", {}, unit);
  const extent = h("p", { class: "extent" });
  const hover = h("div", { class: "hover", hidden: true });
  const plot = h("div", { class: "plot", role: "img", "aria-label": label }, hover);
  const element = h("section", { class: "panel tile", title: meaning },
    h("h2", { class: "label" }, label),
    extent,
    h("p", { class: "value" }, value, small),
    plot);
  let chart = null;
  let last = [[], []];

  const latest = () => {
    const values = last[1];
    const found = bars ? values.findLast((each) => each !== null && each !== undefined) : values.at(-1);
    const words = present?.(found) ?? null;
    text(value, words ?? (found === null || found === undefined ? none : format(found)));
    text(small, words === null && value.textContent !== none ? unit : "");
    const from = (last[0].at(-1) ?? 0) - shownSeconds;
    const known = values.filter((each, index) => each !== null && each !== undefined && last[0][index] >= from);
    text(extent, known.length ? `max ${format(known.reduce((most, each) => Math.max(most, each)))} in ${seconds(Math.min(shownSeconds, last[0].at(-1) - last[0][0]))}` : "");
    element.classList.toggle("flat", known.every((each) => each === 0));
    plot.setAttribute("aria-label", `${label}: ${value.textContent} ${small.textContent}`.trim());
  };

  /** Write the time and the value that are pointed at, beside the pointer. */
  const point = (self) => {
    const { idx, left } = self.cursor;
    const there = idx !== null && idx !== undefined && left >= 0 && self.data[0][idx] !== undefined;
    hover.hidden = !there;
    if (!there) return;
    const found = self.data[1][idx];
    text(hover, `${moment(self.data[0][idx])}   ${found === null || found === undefined ? (bars ? "no epoch" : "not known") : `${format(found)} ${unit}`.trim()}`);
    const x = self.bbox.left / devicePixelRatio + left;
    const beyond = x + 12 + hover.offsetWidth > plot.clientWidth;
    hover.style.left = `${Math.max(0, beyond ? x - 12 - hover.offsetWidth : x + 12)}px`;
  };

  const make = () => {
    const width = plot.clientWidth;
    if (width === 0) return;
    const [line, dim, grid] = [colour(tone), colour("--dim"), colour("--line")];
    chart?.destroy();
    chart = new uPlot({
      width,
      height: plot.clientHeight,
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false }, sync: { key: SYNC.key } },
      padding: [6, 14, 0, 0],
      scales: {
        x: { time: true, range: () => [(last[0].at(-1) ?? 0) - shownSeconds, last[0].at(-1) ?? 1] },
        y: { range: (_chart, _low, high) => [0, Math.max(high ?? 0, least) * 1.08] },
      },
      axes: [
        { stroke: dim, font: FONT, size: 22, gap: 3, space: 46, incrs: () => (shownSeconds > SHORT_SECONDS ? STEPS : SHORT_STEPS), grid: { show: false }, ticks: { stroke: grid, width: 1, size: 3 }, values: (_chart, splits) => splits.map((each) => clock(each, each % 60 === 0)) },
        { stroke: dim, font: FONT, size: (_chart, values) => 10 + Math.max(3, ...(values ?? []).map((each) => String(each).length)) * 6.2, gap: 3, space: 22, grid: { stroke: grid, width: 1 }, ticks: { show: false }, incrs: time ? TIME_STEPS : COUNT_STEPS, values: (_chart, splits) => splits.map((each) => (time ? roundTime(each) : format(each))) },
      ],
      series: [{}, {
        stroke: line, width: bars ? 0 : 1.5, fill: bars ? faded(line, 0.75) : faded(line, 0.12), points: { show: false },
        ...(bars ? { paths: uPlot.paths.bars({ size: [0.9, 10, 1] }) } : {}),
      }],
      hooks: { setCursor: [point] },
    }, last, plot);
  };

  const redraw = () => {
    if (chart === null) make();
    else chart.setData(last);
    latest();
  };
  tiles.add(redraw);
  const sized = new ResizeObserver(() => {
    if (chart === null) make();
    else if (plot.clientWidth > 0) chart.setSize({ width: plot.clientWidth, height: plot.clientHeight });
  });
  sized.observe(plot);
  const themed = new MutationObserver(make);
  themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", make);

  return {
    element,
    set(at, values, step = 1) {
      last = withGaps(at, values, step);
      redraw();
    },
    close() {
      tiles.delete(redraw);
      sized.disconnect();
      themed.disconnect();
      system.removeEventListener("change", make);
      chart?.destroy();
    },
  };
}

/** A control for how far back charts show. */
export function spanControl() {
  const element = h("div", { class: "segments", role: "group", "aria-label": "How far back charts show" });
  const choose = (value) => {
    showLast(value);
    for (const button of element.children) button.setAttribute("aria-pressed", String(Number(button.value) === value));
  };
  element.append(...SPANS.map(([value, label]) => h("button", { type: "button", ".value": String(value), onclick: () => choose(value) }, label)));
  choose(shownSeconds);
  return element;
}
