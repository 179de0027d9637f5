// The overview: how much comes in, how long epochs take, how fresh views are, and what reads what.
import { compact, count, fill, h, seconds, shortKind } from "../dom.js";
import { watchCatalog } from "../catalog.js";
import { tile } from "../charts.js";
import { graph } from "../graph.js";
import { history, now, watchStatus } from "../status.js";
import { viewTable } from "./views.js";

const EXAMPLE = `CREATE TABLE orders (id INT PRIMARY KEY, name STRING, price DECIMAL(9,2));
CREATE MATERIALIZED VIEW totals AS SELECT name, sum(price) AS total FROM orders GROUP BY name;
INSERT INTO orders VALUES (1, 'ann', 10), (2, 'ann', 20);`;

export function overview(main) {
  const rows = tile("Rows in", { format: compact, unit: "/s", least: 5, meaning: "Rows appended to logs" });
  const epochs = tile("Epoch time", { format: seconds, tone: "--good", least: 0.05, meaning: "Seconds that an epoch took, from its poll to its commit" });
  const behind = tile("Freshness", { format: seconds, unit: "behind", tone: "--warn", least: 1, meaning: "How long the oldest change has waited that some view does not show" });
  const pending = tile("Lag", { format: compact, unit: "changes", tone: "--warn", least: 10, meaning: "Changes that have arrived and that no epoch has read" });
  const tiles = [rows, epochs, behind, pending];
  const shape = graph();
  const summary = h("p", { class: "dim" });
  const table = viewTable();
  const below = h("div", { class: "page" });
  const graphPanel = h("section", { class: "panel" }, h("div", { class: "title" }, h("h2", {}, "Sources, views and sinks"), summary), shape.element);
  const viewsPanel = h("section", { class: "panel" }, h("div", { class: "title" }, h("h2", {}, "Views")), table.element);

  fill(main,
    h("div", { class: "head" }, h("h1", {}, "Overview")),
    h("div", { class: "tiles" }, tiles.map((each) => each.element)),
    graphPanel, viewsPanel);

  let known = false;
  const ends = [
    watchStatus((moment) => {
      rows.set(history.at, history.rows);
      epochs.set(history.at, held(history.epoch_seconds));
      behind.set(history.at, history.seconds);
      pending.set(history.at, history.pending);
      shape.tell(moment, now.rates);
      table.tell(moment);
    }),
    watchCatalog((catalog) => {
      const { relations } = catalog;
      if (relations.length === 0) {
        fill(graphPanel, empty());
        viewsPanel.hidden = true;
        known = false;
        return;
      }
      if (!known) fill(graphPanel, h("div", { class: "title" }, h("h2", {}, "Sources, views and sinks"), summary), shape.element);
      viewsPanel.hidden = false;
      known = true;
      shape.set(relations);
      table.set(relations.filter((relation) => relation.kind === "materialized view"));
      if (now.moment !== null) {
        shape.tell(now.moment, now.rates);
        table.tell(now.moment);
      }
      const kinds = relations.reduce((found, { kind }) => ({ ...found, [shortKind(kind)]: (found[shortKind(kind)] ?? 0) + 1 }), {});
      fill(summary, Object.entries(kinds).map(([kind, n]) => `${count(n)} ${kind}${n === 1 ? "" : "s"}`).join(" · "));
    }),
  ];
  return () => {
    for (const end of ends) end();
    for (const each of tiles) each.close();
    shape.close();
  };
}

/** Between two epochs the last one's time holds. */
function held(values) {
  let last = null;
  return values.map((value) => (last = value ?? last));
}

function empty() {
  return h("div", { class: "empty" },
    h("h2", {}, "There is nothing here yet"),
    h("p", {}, "Declare a stream or a table and a view over it, for example:"),
    h("pre", {}, EXAMPLE),
    h("a", { class: "button", href: "#/workbench" }, "Open the workbench"));
}
