// Sinks: where views are written to, how far behind each is, and what its target refused.
import { compact, count, counted, fill, h, linkTo, none, seconds, toned } from "../dom.js";
import { watchCatalog } from "../catalog.js";
import { listing } from "../listing.js";
import { toneOf } from "../problems.js";
import { progressOf } from "../progress.js";
import { problemLinks } from "./views.js";

export function sinks(main) {
  const table = listing("Sinks", ["Name", "State", "Problems", "From", "To", ["Waiting", { class: "num" }], "Guarantee"]);
  fill(main,
    h("div", { class: "head" }, h("h1", {}, "Sinks")),
    h("section", { class: "panel" }, table.element));
  table.wait();
  return watchCatalog(({ relations }) => draw(table, relations.filter(({ kind }) => kind === "sink")));
}

function draw(table, found) {
  table.set(found.map((sink) => [h("tr", {},
    h("td", {}, h("a", { href: linkTo(sink.name) }, sink.name)),
    h("td", {}, toned(toneOf(sink, sink.delivery?.seconds_behind ?? 0), sink.state)),
    h("td", { class: "chips" }, problemLinks(sink)),
    h("td", {}, sink.inputs.join(", ") || (sink.delivery?.source ?? none)), h("td", {}, sink.delivery?.target ?? none),
    h("td", { class: "num", title: sink.delivery ? `${counted(sink.delivery.epochs_behind ?? 0, "epoch")}, delivered up to epoch ${count(sink.delivery.epoch)}` : null }, waiting(sink.delivery)),
    h("td", { class: "dim" }, sink.delivery?.guarantee ?? none)),
  sink.delivery?.rows_total ? h("tr", {}, h("td", { colspan: 7 },
    progressOf({ what: "Writing", done: sink.delivery.rows_done, total: sink.delivery.rows_total, unit: "rows" }))) : null].filter((row) => row !== null)).flat(),
  "No sinks. CREATE SINK name FROM view WITH (...) writes each change of a view to a table, a topic, files or another database.");
}

function waiting(delivery) {
  if (!delivery) return none;
  if (!delivery.rows_behind) return "nothing";
  return `${compact(delivery.rows_behind)} rows, ${seconds(delivery.seconds_behind)}`;
}
