// Streams and tables: what comes in, how far behind a source is, and what was left out.
import { send } from "../api.js";
import { compact, count, errorBox, fill, h, linkTo, moment as timeOf, none, stateOf, text } from "../dom.js";
import { watchCatalog } from "../catalog.js";
import { now, watchStatus } from "../status.js";

const MOST_REJECTS = 200;

export function sources(main, chosen) {
  const body = h("tbody");
  const rejects = h("section", { class: "panel", hidden: true });
  fill(main,
    h("div", { class: "head" }, h("h1", {}, "Sources")),
    h("section", { class: "panel" }, h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "Name"), h("th", {}, "State"), h("th", { class: "optional" }, "Connector"),
        h("th", { class: "num" }, "Rows/s"), h("th", { class: "num" }, "Changes"), h("th", { class: "num" }, "Lag"),
        h("th", { class: "num" }, "Rejected"), h("th", { class: "num optional" }, "Duplicates"), h("th", { class: "num optional" }, "Late"), h("th", { class: "optional" }, "Watermark"))),
      body))),
    rejects);

  let rates = new Map();
  let drawn = null;
  const draw = ({ relations, sources: shared }) => {
    const found = [...relations.filter(({ kind }) => kind === "stream" || kind === "table").map(({ source, kind }) => ({ ...source, kind })),
      ...shared.map((source) => ({ ...source, kind: "source" }))];
    const shape = JSON.stringify(found);
    if (shape === drawn) return;
    drawn = shape;
    rates = new Map();
    fill(body, found.map((source) => {
      const rate = h("td", { class: "num" }, none);
      rates.set(source.name, rate);
      const rejected = source.rejected ? h("a", { href: `#/sources/${encodeURIComponent(source.name)}`, "aria-label": `${source.rejected} rejected rows of ${source.name}` }, count(source.rejected)) : count(source.rejected);
      return [h("tr", {},
        h("td", {}, source.kind === "source" ? source.name : h("a", { href: linkTo(source.name) }, source.name)),
        h("td", {}, stateOf(source.state)),
        h("td", { class: "dim optional" }, source.connector ?? "log"),
        rate, h("td", { class: "num" }, count(source.end)), h("td", { class: "num" }, count(source.behind)), h("td", { class: "num" }, rejected),
        h("td", { class: "num optional" }, count(source.duplicates)), h("td", { class: "num optional" }, count(source.late)),
        h("td", { class: "optional" }, timeOf(source.watermark))),
      source.error ? h("tr", {}, h("td", { colspan: 10 }, h("div", { class: "error" }, source.error))) : null];
    }).flat());
    if (found.length === 0) fill(body, h("tr", {}, h("td", { colspan: 10, class: "dim" }, "No streams or tables yet.")));
    tell();
  };
  const tell = () => {
    for (const [name, cell] of rates) {
      const rate = now.rates[name];
      text(cell, rate === undefined ? none : compact(rate));
      cell.classList.toggle("zero", !rate);
    }
  };
  if (chosen) showRejects(rejects, chosen);
  const ends = [watchCatalog(draw), watchStatus(tell)];
  return () => {
    for (const end of ends) end();
  };
}

/** Show the rows of one source that did not fit, with the reason and the place of each. */
async function showRejects(place, name) {
  const quoted = name.split(".").map((part) => `\`${part.replaceAll("`", "``")}\``).join(".");
  place.hidden = false;
  try {
    const found = await send("POST", "/v1/sql", { sql: `SHOW REJECTS FOR ${quoted} LIMIT ${MOST_REJECTS}` });
    const at = Object.fromEntries(found.columns.map((column, index) => [column.name, index]));
    fill(place, h("div", { class: "title" }, h("h2", {}, `Rejected rows of ${name}`), h("span", { class: "dim" }, `the newest ${count(found.rows.length)}`)),
      h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Rejected rows" }, h("table", { class: "data" },
        h("thead", {}, h("tr", {}, ["At", "Place", "Column", "Reason", "Row as it came"].map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", {}, found.rows.map((row) => h("tr", {},
          h("td", { class: "dim" }, row[at.at]), h("td", {}, `${row[at.file] ?? ""}:${row[at.line] ?? ""}`),
          h("td", {}, row[at.column] ?? ""), h("td", {}, row[at.reason] ?? ""), h("td", { title: row[at.raw] }, row[at.raw] ?? "")))))));
  } catch (error) {
    fill(place, errorBox(error.error));
  }
}
