// All views, and the table of them that the overview has, too.
import { bytes, compact, fill, h, linkTo, none, percent, seconds, text, toned } from "../dom.js";
import { watchCatalog } from "../catalog.js";
import { listing } from "../listing.js";
import { currency, problemsOf, toneOf } from "../problems.js";
import { now, watchStatus } from "../status.js";

/** The links to what is wrong with a relation. */
export function problemLinks(relation) {
  return problemsOf(relation).map(({ tone, tab, text: words }) => h("a", { class: `chip ${tone}`, href: linkTo(relation.name, tab), title: words }, words.length > 60 ? `${words.slice(0, 59)}…` : words));
}

/** Make a table of views. `set(relations)` fills it; `tell(moment)` writes how current they are. */
export function viewTable() {
  const table = listing("Views", ["Name", "Freshness", "Problems", ["Rows", { class: "num" }],
    ["Cost", { class: "num", title: "Its share of the work of all operators since the server was started; candidates have the rest" }],
    ["Stored", { class: "num", title: "What the view and its operators keep on disk" }],
    ["Waiting", { class: "num", title: "Changes of its inputs that the view does not show yet" }], "Reads"]);
  let lines = new Map();
  let drawn = null;
  table.wait();
  return {
    element: table.element,
    /** Show views, with what each costs. */
    set(relations, costs = []) {
      const shape = JSON.stringify(relations.map((r) => [r.name, r.state, r.inputs, problemsOf(r)]));
      if (shape !== drawn) {
        drawn = shape;
        lines = new Map();
        table.set(relations.map((relation) => {
          const line = {
            relation, fresh: h("td", {}), rows: h("td", { class: "num" }), cost: h("td", { class: "num" }), bytes: h("td", { class: "num" }), pending: h("td", { class: "num" }),
          };
          lines.set(relation.name, line);
          return h("tr", {},
            h("td", {}, h("a", { href: linkTo(relation.name) }, relation.name)), line.fresh, h("td", { class: "chips" }, problemLinks(relation)),
            line.rows, line.cost, line.bytes, line.pending,
            h("td", { class: "dim" }, relation.inputs.join(", ")));
        }), "No views.");
      }
      for (const relation of relations) {
        const line = lines.get(relation.name);
        line.relation = relation;
        const { stored } = relation;
        text(line.rows, stored === null ? none : stored.rows === null ? `≤ ${compact(stored.entries)}` : compact(stored.rows));
        text(line.bytes, bytes(stored?.bytes));
        const cost = costs.find(({ name, candidate }) => name === relation.name && !candidate) ?? null;
        text(line.cost, percent(cost?.share ?? 0));
        line.cost.classList.toggle("zero", !cost?.share);
        line.cost.title = cost === null ? "It has had nothing to do." : `${seconds(cost.seconds)} of work since the server was started`;
      }
    },
    tell(moment) {
      for (const [name, line] of lines) {
        const [pending, behind] = moment.views[name] ?? [null, null];
        const words = line.relation.state === "lagging" ? `refreshed ${line.relation.freshness.refresh}` : currency(pending, behind);
        const tone = toneOf(line.relation, behind);
        const shape = `${tone} ${words}`;
        if (line.shape !== shape) {
          line.shape = shape;
          fill(line.fresh, toned(tone, words));
        }
        text(line.pending, compact(pending));
        line.pending.classList.toggle("zero", pending === 0);
      }
    },
  };
}

export function views(main) {
  const table = viewTable();
  const others = listing("Plain views", ["Name", "Reads"]);
  const search = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter by name", oninput: draw });
  const plain = h("section", { class: "panel", hidden: true }, h("div", { class: "title" }, h("h2", {}, "Plain views"), h("span", { class: "dim" }, "They store no rows: their query runs where they are read.")), others.element);
  fill(main,
    h("div", { class: "head" }, h("h1", {}, "Views"), h("span", { class: "spacer" }), search),
    h("section", { class: "panel" }, h("div", { class: "title" }, h("h2", {}, "Materialized views")), table.element),
    plain);

  let last = [];
  let costs = [];
  let drawn = null;
  function draw() {
    const wanted = search.value.trim().toLowerCase();
    const found = last.filter(({ name }) => name.includes(wanted));
    table.set(found.filter(({ kind }) => kind === "materialized view"), costs);
    if (now.moment !== null) table.tell(now.moment);
    const rest = found.filter(({ kind }) => kind === "plain view");
    plain.hidden = rest.length === 0;
    const shape = JSON.stringify(rest.map((r) => [r.name, r.inputs]));
    if (shape === drawn) return;
    drawn = shape;
    others.set(rest.map((relation) => h("tr", {},
      h("td", {}, h("a", { href: linkTo(relation.name) }, relation.name)), h("td", { class: "dim" }, relation.inputs.join(", ")))));
  }
  const ends = [
    watchStatus((moment) => table.tell(moment)),
    watchCatalog(({ relations, costs: found }) => {
      last = relations;
      costs = found;
      draw();
    }),
  ];
  return () => {
    for (const end of ends) end();
  };
}
