// All relations, and the table of views that the overview has, too.
import { bytes, compact, fill, h, linkTo, seconds, stateOf, text } from "../dom.js";
import { watchCatalog } from "../catalog.js";
import { now, watchStatus } from "../status.js";

/** Make a table of views. `set(relations)` fills it; `tell(moment)` writes how current they are. */
export function viewTable() {
  const body = h("tbody");
  const element = h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, "Name"), h("th", {}, "State"),
      h("th", { class: "num" }, "Behind"), h("th", { class: "num" }, "Pending"),
      h("th", { class: "num optional", title: "Rows of the view, and of what its operators keep" }, "Rows in state"), h("th", { class: "num optional" }, "Bytes"), h("th", { class: "optional" }, "Reads"))),
    body));
  let cells = new Map();
  let drawn = null;
  return {
    element,
    set(relations) {
      const shape = JSON.stringify(relations.map((r) => [r.name, r.state, r.inputs]));
      if (shape !== drawn) {
        drawn = shape;
        cells = new Map();
        fill(body, relations.map((relation) => {
          const cell = {
            behind: h("td", { class: "num" }), pending: h("td", { class: "num" }),
            rows: h("td", { class: "num optional" }), bytes: h("td", { class: "num optional" }),
          };
          cells.set(relation.name, cell);
          return h("tr", {},
            h("td", {}, h("a", { href: linkTo(relation.name) }, relation.name)),
            h("td", {}, stateOf(relation.state)), cell.behind, cell.pending, cell.rows, cell.bytes,
            h("td", { class: "dim optional" }, relation.inputs.join(", ")));
        }));
        if (relations.length === 0) fill(body, h("tr", {}, h("td", { colspan: 7, class: "dim" }, "No views yet.")));
      }
      for (const { name, stored } of relations) {
        text(cells.get(name).rows, compact(stored?.rows));
        text(cells.get(name).bytes, bytes(stored?.bytes));
      }
    },
    tell(moment) {
      for (const [name, cell] of cells) {
        const [pending, behind] = moment.views[name] ?? [null, null];
        text(cell.behind, seconds(behind));
        text(cell.pending, compact(pending));
        cell.behind.classList.toggle("zero", behind === 0);
        cell.pending.classList.toggle("zero", pending === 0);
      }
    },
  };
}

export function views(main) {
  const table = viewTable();
  const others = h("tbody");
  const search = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter by name", oninput: draw });
  fill(main,
    h("div", { class: "head" }, h("h1", {}, "Views"), h("span", { class: "spacer" }), search),
    h("section", { class: "panel" }, h("div", { class: "title" }, h("h2", {}, "Materialized views")), table.element),
    h("section", { class: "panel" }, h("div", { class: "title" }, h("h2", {}, "Plain views and sinks")),
      h("div", { class: "scroll" }, h("table", {},
        h("thead", {}, h("tr", {}, h("th", {}, "Name"), h("th", {}, "Kind"), h("th", {}, "State"), h("th", {}, "Reads"))), others))));

  let last = [];
  let drawn = null;
  function draw() {
    const wanted = search.value.trim().toLowerCase();
    const found = last.filter(({ name }) => name.includes(wanted));
    table.set(found.filter(({ kind }) => kind === "materialized view"));
    if (now.moment !== null) table.tell(now.moment);
    const rest = found.filter(({ kind }) => kind === "plain view" || kind === "sink");
    const shape = JSON.stringify(rest.map((r) => [r.name, r.state]));
    if (shape === drawn) return;
    drawn = shape;
    fill(others, rest.map((relation) => h("tr", {},
      h("td", {}, h("a", { href: linkTo(relation.name) }, relation.name)), h("td", { class: "dim" }, relation.kind),
      h("td", {}, stateOf(relation.state)), h("td", { class: "dim" }, relation.inputs.join(", ")))));
    if (rest.length === 0) fill(others, h("tr", {}, h("td", { colspan: 4, class: "dim" }, "None.")));
  }
  const ends = [
    watchStatus((moment) => table.tell(moment)),
    watchCatalog(({ relations }) => {
      last = relations;
      draw();
    }),
  ];
  return () => {
    for (const end of ends) end();
  };
}
