// Streams and tables: what comes in, how far behind a source is, and what was left out.
import { get } from "../api.js";
import { bytes, compact, count, fill, h, linkTo, moment as timeOf, none, seconds, text, toned } from "../dom.js";
import { watchCatalog } from "../catalog.js";
import { listing } from "../listing.js";
import { together } from "../objects.js";
import { notesOf, toneOf } from "../problems.js";
import { sparkline } from "../sparkline.js";
import { now, watchStatus } from "../status.js";
import { problemLinks } from "./views.js";

const SPARK_SECONDS = 120;
const MOST_READ = 24;

export function sources(main) {
  const table = listing("Sources", ["Name", "State", "Problems", "Last 2 minutes", ["Rows/s", { class: "num" }], ["Changes", { class: "num" }],
    ["To read", { class: "num", title: "Rows that the external system has and that have not been read yet; of a source of PostgreSQL, how much of its log waits in the slot" }], "Late, duplicates", "Connector",
    ["Watermark", { title: "Events before this time are not expected any more" }]]);
  fill(main,
    h("div", { class: "head" }, h("h1", {}, "Sources")),
    h("section", { class: "panel" }, table.element));

  table.wait();
  let lines = new Map();
  let drawn = null;
  const series = new Map();
  const draw = ({ relations, sources: shared }) => {
    const found = together(relations.filter(({ kind }) => kind === "stream" || kind === "table"), shared);
    const shape = JSON.stringify(found.map(({ name, state, source }) => [name, state, source.error, source.rejected, source.acknowledged, source.connector]));
    if (shape !== drawn) {
      drawn = shape;
      lines = new Map();
      table.set(found.map((relation) => {
        const { name, kind, source } = relation;
        const line = { spark: sparkline(), rate: h("td", { class: "num" }, none), end: h("td", { class: "num" }), behind: h("td", { class: "num" }), notes: h("td", { class: "dim nowrap" }), mark: h("td", { class: "dim nowrap" }) };
        lines.set(keyOf(kind, name), line);
        return h("tr", {},
          h("td", { class: source.shared_source ? "below" : null }, kind === "source" ? h("span", { class: "name" }, name) : h("a", { href: linkTo(name) }, name), h("div", { class: "sub" }, kind === "source" ? "source of the tables below" : kind)),
          h("td", {}, toned(toneOf(relation), relation.state)),
          h("td", { class: "chips" }, kind === "source" ? source.error ?? "" : problemLinks(relation)),
          h("td", {}, kind === "source" ? null : line.spark.element), line.rate, line.end, line.behind, line.notes,
          h("td", { class: "dim" }, source.shared_source ? `${source.connector ?? "postgres"}, by ${source.shared_source}` : source.connector ?? "written by SQL"), line.mark);
      }), "No streams or tables yet.");
      readHistory(found.filter(({ kind }) => kind !== "source").map(({ name }) => name), series, tell);
    }
    for (const { name, kind, source } of found) {
      const line = lines.get(keyOf(kind, name));
      text(line.end, source.end === null ? "" : count(source.end));
      text(line.behind, source.behind === null ? "" : kind === "source" ? `${bytes(source.behind)} of the slot` : count(source.behind));
      text(line.notes, notesOf(source).join(", "));
      text(line.mark, source.watermark === null ? "" : timeOf(source.watermark));
      line.mark.title = source.delay ? `${seconds(source.delay)} behind the newest event` : "";
    }
    tell();
  };
  const tell = () => {
    for (const [name, line] of lines) {
      const rate = now.rates[name];
      text(line.rate, rate === undefined ? none : compact(Math.round(rate * 10) / 10));
      line.rate.classList.toggle("zero", !rate);
      line.spark.set(series.get(name) ?? []);
    }
  };
  const ends = [watchCatalog(draw), watchStatus(() => {
    for (const name of lines.keys()) {
      const values = series.get(name) ?? [];
      values.push(now.rates[name] ?? 0);
      series.set(name, values.slice(-SPARK_SECONDS));
    }
    tell();
  })];
  return () => {
    for (const end of ends) end();
  };
}

const keyOf = (kind, name) => (kind === "source" ? `source ${name}` : name);

/** Read the rates of the last minutes of each source that has none yet. */
async function readHistory(names, series, tell) {
  for (const name of names.slice(0, MOST_READ)) {
    if (series.has(name)) continue;
    series.set(name, []);
    try {
      const { relation } = await get("/v1/history", { relation: name, seconds: SPARK_SECONDS });
      series.set(name, [...relation.rows.map((rate) => rate ?? 0), ...series.get(name)].slice(-SPARK_SECONDS));
      tell();
    } catch {
      // The next moments fill it.
    }
  }
}
