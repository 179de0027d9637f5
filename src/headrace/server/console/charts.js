// Small charts of the last minutes: a title, the present value, and a line.
import uPlot from "./vendor/uplot.js";
import { h, moment, none, seconds, text } from "./dom.js";

const probe = h("span", { hidden: true });

/** The colour that a variable of the style has in the present theme. */
function colour(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

const faded = (rgb, alpha) => rgb.replace(/^rgb\(([^)]+)\)$/, `rgba($1, ${alpha})`);

/**
 * Make a tile with a chart. `format` writes a value; `least` is the least height of the scale.
 *
 * `set(at, values)` draws values over moments in Unix seconds; None leaves a gap.
 */
export function tile(label, { format, unit = "", tone = "--accent", least = 1, meaning = null }) {
  const value = h("span", {}, none);
  const small = h("small", {}, unit);
  const extent = h("p", { class: "extent" });
  const plot = h("div", { class: "plot", role: "img", "aria-label": label });
  const element = h("section", { class: "panel tile", title: meaning },
    h("h2", { class: "label" }, label),
    extent,
    h("p", { class: "value" }, value, small),
    plot);
  let chart = null;
  let last = [[], []];
  let pointed = false;

  const latest = () => {
    const values = last[1];
    const found = values.length ? values.at(-1) : null;
    text(value, found === null || found === undefined ? none : format(found));
    text(small, unit);
    const known = values.filter((each) => each !== null && each !== undefined);
    const span = last[0].length > 1 ? ` in ${seconds(last[0].at(-1) - last[0][0])}` : "";
    text(extent, known.length ? `max ${format(known.reduce((most, each) => Math.max(most, each)))}${span}` : "");
    plot.setAttribute("aria-label", `${label}: ${value.textContent} ${unit}`.trim());
  };

  const make = () => {
    const width = plot.clientWidth;
    if (width === 0) return;
    const line = colour(tone);
    chart?.destroy();
    chart = new uPlot({
      width,
      height: plot.clientHeight,
      legend: { show: false },
      cursor: { y: false, points: { size: 5 }, drag: { x: false, y: false } },
      padding: [4, 2, 2, 2],
      scales: { x: { time: true }, y: { range: (_chart, _low, high) => [0, Math.max(high ?? 0, least) * 1.08] } },
      axes: [{ show: false }, { show: false }],
      series: [{}, { stroke: line, width: 1.5, fill: faded(line, 0.1), points: { show: false } }],
      hooks: {
        setCursor: [(self) => {
          const index = self.cursor.idx;
          pointed = index !== null && index !== undefined && self.cursor.left >= 0;
          if (!pointed) return latest();
          const found = self.data[1][index];
          text(value, found === null || found === undefined ? none : format(found));
          text(small, `${unit} at ${moment(self.data[0][index])}`.trim());
        }],
      },
    }, last, plot);
  };

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
    set(at, values) {
      last = [at, values];
      if (chart === null) make();
      else chart.setData(last);
      if (!pointed) latest();
    },
    close() {
      sized.disconnect();
      themed.disconnect();
      system.removeEventListener("change", make);
      chart?.destroy();
    },
  };
}
