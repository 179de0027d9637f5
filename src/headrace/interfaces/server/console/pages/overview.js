// The overview: what needs attention, how much comes in, how fresh views are, and what reads what.
import { compact, counted, fill, h, linkTo, seconds, shortKind } from "../dom.js";
import { watchCatalog } from "../catalog.js";
import { spanControl, tile } from "../charts.js";
import { followFigures } from "../figures.js";
import { graph } from "../graph.js";
import { problemsOf } from "../problems.js";
import { now, watchStatus } from "../status.js";
import { viewTable } from "./views.js";

const EXAMPLE = `CREATE TABLE orders (id INT PRIMARY KEY, name STRING, price DECIMAL(9,2));
CREATE MATERIALIZED VIEW totals AS SELECT name, sum(price) AS total FROM orders GROUP BY name;
INSERT INTO orders VALUES (1, 'ann', 10), (2, 'ann', 20);`;

export function overview(main) {
  const rows = tile("Rows in", { format: compact, unit: "rows/s", least: 5, meaning: "Rows that arrived in all streams and tables" });
  const behind = tile("Freshness", { format: seconds, time: true, unit: "behind", tone: "--warn", least: 1, present: (value) => (value === 0 ? "up to date" : null), meaning: "How long the oldest change has waited that some view does not show" });
  const pending = tile("Waiting", { format: compact, unit: "changes", tone: "--warn", least: 10, meaning: "Changes that have arrived and that views do not show yet" });
  const epochs = tile("Epoch time", { format: seconds, time: true, tone: "--good", least: 0.05, bars: true, meaning: "How long it takes to bring all views up to date: an epoch applies the changes that have arrived, all at once" });
  const tiles = [rows, behind, pending, epochs];
  const shape = graph();
  const summary = h("p", { class: "dim" });
  const table = viewTable();
  const attention = h("section", { class: "panel attention", hidden: true, "aria-label": "Needs attention" });
  const heading = h("div", { class: "title" }, h("h2", {}, "Sources, views and sinks"), summary);
  const graphPanel = h("section", { class: "panel" }, heading, shape.element);
  const viewsPanel = h("section", { class: "panel" }, h("div", { class: "title" }, h("h2", {}, "Views")), table.element);

  fill(main,
    h("div", { class: "head" }, h("h1", {}, "Overview"), h("div", { class: "tools" }, spanControl())),
    attention,
    h("div", { class: "tiles" }, tiles.map((each) => each.element)),
    graphPanel, viewsPanel);

  let known = false;
  let listed = null;
  const ends = [
    followFigures(null, ({ at, ...figures }, step) => {
      rows.set(at, figures.rows, step);
      epochs.set(at, figures.epoch_seconds, step);
      behind.set(at, figures.seconds, step);
      pending.set(at, figures.pending, step);
    }),
    watchStatus((moment) => {
      shape.tell(moment, now.rates);
      table.tell(moment);
    }),
    watchCatalog((catalog) => {
      const { relations } = catalog;
      if (relations.length === 0) {
        fill(graphPanel, empty());
        viewsPanel.hidden = true;
        attention.hidden = true;
        known = false;
        return;
      }
      if (!known) fill(graphPanel, heading, shape.element);
      viewsPanel.hidden = false;
      known = true;
      shape.set(relations);
      table.set(relations.filter((relation) => relation.kind === "materialized view"), catalog.costs);
      if (now.moment !== null) {
        shape.tell(now.moment, now.rates);
        table.tell(now.moment);
      }
      const wrong = relations.flatMap((relation) => problemsOf(relation).map((problem) => ({ ...problem, relation })));
      const found = JSON.stringify(wrong.map(({ relation, text }) => [relation.name, text]));
      if (found !== listed) {
        listed = found;
        drawAttention(attention, wrong);
      }
      const kinds = relations.reduce((all, { kind }) => ({ ...all, [shortKind(kind)]: (all[shortKind(kind)] ?? 0) + 1 }), {});
      fill(summary, Object.entries(kinds).map(([kind, n]) => counted(n, kind)).join(" · "));
    }),
  ];
  return () => {
    for (const end of ends) end();
    for (const each of tiles) each.close();
    shape.close();
  };
}

function drawAttention(panel, wrong) {
  panel.hidden = wrong.length === 0;
  const ordered = [...wrong].sort((a, b) => Number(b.tone === "bad") - Number(a.tone === "bad"));
  fill(panel, h("div", { class: "title" }, h("h2", {}, "Needs attention")),
    h("ul", {}, ordered.map(({ relation, tone, tab, text }) => h("li", {},
      h("span", { class: `dot ${tone}`, "aria-hidden": "true" }), h("a", { href: linkTo(relation.name, tab) }, relation.name), h("span", { class: "kind" }, shortKind(relation.kind)), h("span", { class: "why" }, text)))));
}

function empty() {
  return h("div", { class: "empty" },
    h("h2", {}, "There is nothing here yet"),
    h("p", {}, "Declare a stream or a table and a view over it, for example:"),
    h("pre", {}, EXAMPLE),
    h("a", { class: "button", href: "#/workbench" }, "Open the workbench"));
}
