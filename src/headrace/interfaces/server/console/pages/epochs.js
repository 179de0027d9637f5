// Epochs: how wide the latest ones were and why, where their time went, and what made them grow.
import { get } from "../api.js";
import { OPERATORS } from "../circuit.js";
import { count, counted, errorBox, fill, h, linkTo, moment, none, seconds, svg } from "../dom.js";
import { listing } from "../listing.js";
import { watchStatus } from "../status.js";

const ACTIVITIES = [
  ["planning", "Planning", "choosing what is run over which files, and building programs"],
  ["reading", "Reading", "reading the changes of streams and tables"],
  ["expressions", "Expressions", "evaluating expressions in the server's process"],
  ["crossings", "Crossings", "having the JVM evaluate expressions that only Spark knows"],
  ["operators", "Operators", "stepping joins, aggregates and other operators"],
  ["jobs", "Jobs", "waiting for Spark jobs"],
  ["writing", "Writing", "writing runs, and making them durable"],
  ["other", "Other", "all else until the commit"],
  ["commit", "Commit", "the transaction of the ledger"],
  ["publishing", "Publishing", "showing the new state to readers"],
];
const KINDS = [["all", "All", () => true], ["narrow", "Narrow", ({ width }) => width === "narrow"], ["wide", "Wide", ({ width }) => width?.startsWith("wide")]];
const LEAST = 0.005;
const ORDERS = [["newest", "Newest first", (a, b) => b.epoch - a.epoch], ["slowest", "Slowest first", (a, b) => (b.seconds ?? 0) - (a.seconds ?? 0)], ["largest", "Most changes first", (a, b) => (b.changes ?? 0) - (a.changes ?? 0)]];
const FAN_OUT = /^(.*): ([a-z]+)\d+ (.*)$/;

export function epochs(main) {
  const table = listing("Latest epochs", [["Epoch", { class: "num" }], "Committed", "Width", ["Changes", { class: "num" }], ["Took", { class: "num" }], "Where its time went", "Most rows made by"], { tall: true, kind: "epochs" });
  const failed = h("div");
  const summary = h("p", { class: "dim", role: "status" });
  let kind = "all";
  let last = null;
  const order = h("select", { "aria-label": "Order of epochs", onchange: () => last !== null && draw() }, ORDERS.map(([key, label]) => h("option", { ".value": key }, label)));
  const segments = h("div", { class: "segments", role: "group", "aria-label": "Which epochs" }, KINDS.map(([key, label]) => h("button", {
    type: "button", ".value": key, "aria-pressed": String(key === kind),
    onclick() {
      kind = key;
      for (const each of segments.children) each.setAttribute("aria-pressed", String(each.value === kind));
      if (last !== null) draw();
    },
  }, label)));
  fill(main,
    h("div", { class: "head" }, h("h1", {}, "Epochs")),
    failed,
    h("section", { class: "panel" },
      h("div", { class: "title" }, h("h2", {}, "Latest epochs"), summary, h("div", { class: "tools" }, order, segments)),
      legend(table.element),
      table.element));
  table.wait();

  function draw() {
    const [, , wanted] = KINDS.find(([key]) => key === kind);
    const chosen = last.filter(wanted);
    const nothing = { all: "No epoch has been made yet.", narrow: "No epoch was narrow: none ran in the server's process.", wide: "No epoch was wide: none ran as Spark jobs." }[kind];
    const made = last.filter(({ width }) => width !== null);
    const narrow = made.filter(({ width }) => width === "narrow").length;
    fill(summary, made.length === 0 ? "" : `${count(narrow)} narrow, ${count(made.length - narrow)} wide`);
    const [, , ordered] = ORDERS.find(([key]) => key === order.value);
    table.set([...chosen].sort(ordered).map(lineOf), nothing);
  }

  let closed = false;
  let reading = false;
  let shown = null;
  async function read(at) {
    if (reading || at.epoch === shown) return;
    reading = true;
    try {
      const found = await get("/v1/epochs");
      if (closed) return;
      shown = at.epoch;
      fill(failed);
      last = found.epochs;
      draw();
    } catch (error) {
      if (!closed) fill(failed, errorBox(error.error));
    } finally {
      reading = false;
    }
  }
  const end = watchStatus(read);
  return () => {
    closed = true;
    end();
  };
}

function lineOf(epoch) {
  return h("tr", {},
    h("td", { class: "num" }, count(epoch.epoch)),
    h("td", { class: "dim nowrap" }, moment(epoch.committed_at)),
    h("td", { class: "nowrap" }, epoch.width ?? h("span", { class: "dim" }, none)),
    h("td", { class: "num" }, count(epoch.changes)),
    h("td", { class: "num nowrap", title: epoch.jobs === null ? null : counted(epoch.jobs, "Spark job") }, epoch.seconds === null ? none : seconds(epoch.seconds)),
    h("td", { class: "spent" }, spentOf(epoch.spent), inTasks(epoch.tasks_spent)),
    h("td", {}, fanOutOf(epoch)));
}

/** What made the most rows of an epoch: the view, its operator by the name that the circuit has, and rows per change. */
function fanOutOf({ fans_out: words, fans_out_view: view }) {
  if (words === null) return h("span", { class: "dim" }, none);
  const [, name, operator, rows] = FAN_OUT.exec(words) ?? [null, words, null, ""];
  return [view === null ? name : h("a", { href: linkTo(view, "circuit") }, name), operator === null ? null : h("div", { class: "dim" }, `${OPERATORS[operator] ?? operator}: ${rows}`)];
}

/** The colours of activities; choosing one fades the others. */
function legend(table) {
  const chosen = (key) => {
    if (table.dataset.only === key) delete table.dataset.only;
    else table.dataset.only = key;
    for (const each of element.children) each.setAttribute("aria-pressed", String(each.value === table.dataset.only));
  };
  const element = h("div", { class: "legend", role: "group", "aria-label": "Activities: choose one to show it alone" }, ACTIVITIES.map(([key, label, meaning]) => h("button", { type: "button", class: "plain", ".value": key, "aria-pressed": "false", title: `${label}: ${meaning}`, onclick: () => chosen(key) }, swatch(key), label)));
  return element;
}

/** Return in words what the tasks of an epoch's jobs spent most on. */
function inTasks(spent) {
  const words = wordsOf(ACTIVITIES.filter(([key]) => spent[key] > 0).map(([key, label]) => ({ label, ms: spent[key] })));
  return words.length === 0 ? null : h("div", { class: "dim", title: words.join("\n") }, `in tasks: ${words.slice(0, 3).join(" · ")}`);
}

const wordsOf = (found) => [...found].sort((a, b) => b.ms - a.ms).map(({ label, ms }) => `${label.toLowerCase()} ${milliseconds(ms)}`);

/** Return a bar of what an epoch spent its time on, and in words what it spent most on. */
function spentOf(spent) {
  const found = ACTIVITIES.filter(([key]) => spent[key] > 0).map(([key, label]) => ({ key, label, ms: spent[key] }));
  const whole = found.reduce((sum, { ms }) => sum + ms, 0);
  if (whole === 0) return h("span", { class: "dim" }, none);
  const words = wordsOf(found);
  let x = 0;
  const bar = svg("svg", { class: "parts", viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": words.join(", ") },
    svg("title", {}, words.join("\n")),
    found.filter(({ ms }) => ms / whole >= LEAST).map(({ key, ms }) => {
      const width = (100 * ms) / whole;
      const part = svg("rect", { class: key, x, y: 0, width, height: 8 });
      x += width;
      return part;
    }));
  return [bar, h("div", { class: "dim" }, words.slice(0, 3).join(" · "))];
}

const milliseconds = (ms) => (ms < 10 ? `${ms.toFixed(1)} ms` : seconds(ms / 1000));

const swatch = (key) => svg("svg", { class: "parts swatch", viewBox: "0 0 8 8", "aria-hidden": "true" }, svg("rect", { class: key, width: 8, height: 8, rx: 2 }));
