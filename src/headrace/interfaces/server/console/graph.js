// The graph of sources, views and sinks: each kind in its columns, from left to right.
import { compact, linkTo, shortKind, svg, text } from "./dom.js";
import { connected, layered, pathOf } from "./layers.js";
import { currency, problemsOf, toneOf } from "./problems.js";
import { lightPaths, viewport } from "./viewport.js";

const HEIGHT = 42;
const LONGEST = 26;
const HEADING = 24;

/** Make the graph. `set(relations)` lays it out; `tell(moment, rates)` writes what it shows now. */
export function graph() {
  const place = viewport("Sources, views and sinks, and what reads what");
  let drawn = null;
  let nodes = new Map();
  let edges = [];

  function set(relations) {
    if (relations.length === 0) return;
    const shape = JSON.stringify(relations.map((r) => [r.name, r.kind, r.inputs, r.target]));
    if (shape !== drawn) {
      drawn = shape;
      draw(relations);
    }
    for (const relation of relations) nodes.get(relation.name).relation = relation;
  }

  function draw(relations) {
    const { columns, links, titles } = columnsOf(relations);
    const plan = layered(relations.map((relation) => ({
      id: relation.name, column: columns.get(relation.name), height: HEIGHT,
      width: Math.max(138, 40 + Math.min(relation.name.length, LONGEST) * 7.3),
    })), links, { gap: 46, between: 12, margin: 6, top: HEADING });
    const root = svg("svg", { viewBox: `0 0 ${plan.width} ${plan.height}`, role: "group", "aria-label": `${relations.length} relations, and what reads what` });
    titles.forEach((title, column) => {
      if (title) root.append(svg("text", { class: "heading", x: plan.columns[column].x + 1, y: 14 }, title));
    });
    edges = plan.edges.map((edge) => {
      const path = svg("path", { class: "edge", d: pathOf(edge) });
      if (edge.back) path.classList.add("back");
      root.append(path);
      return { edge, path };
    });
    nodes = new Map();
    const elements = new Map();
    const byName = new Map(relations.map((relation) => [relation.name, relation]));
    for (const { id, x, y, width } of plan.nodes) {
      const relation = byName.get(id);
      const dot = svg("circle", { class: toneOf(relation), cx: 13, cy: 15, r: 3.5 });
      const under = svg("text", { class: "under", x: 23, y: 33 }, shortKind(relation.kind));
      const fits = Math.floor((width - 34) / 7.1);
      const name = id.length > fits ? `${id.slice(0, fits - 1)}…` : id;
      const element = svg("a", { class: "node", href: linkTo(id), transform: `translate(${x},${y})`, "aria-label": `${relation.kind} ${id}` },
        svg("title", {}, `${relation.kind} ${id}`),
        svg("rect", { width, height: HEIGHT, rx: 6 }), dot, svg("text", { class: "name", x: 23, y: 19 }, name), under);
      root.append(element);
      elements.set(id, element);
      nodes.set(id, { dot, under, relation });
    }
    lightPaths(root, elements, edges, connected);
    place.show(root, plan.width, plan.height);
  }

  function tell(moment, rates) {
    for (const [name, { under, dot, relation }] of nodes) {
      const [pending, behind] = moment.views[name] ?? [0, 0];
      text(under, said(name, relation, pending, behind, rates));
      const tone = toneOf(relation, behind);
      if (dot.getAttribute("class") !== tone) dot.setAttribute("class", tone);
    }
    const flowing = new Map();
    const flows = (name) => {
      if (!flowing.has(name)) {
        flowing.set(name, false); // for a sink that writes to what it reads from
        flowing.set(name, (rates[name] ?? 0) > 0 || (nodes.get(name)?.relation.inputs ?? []).some(flows));
      }
      return flowing.get(name);
    };
    for (const { edge, path } of edges) path.classList.toggle("flows", flows(edge.from));
  }

  return { element: place.element, set, tell, close: place.close };
}

/**
 * Return the column of each relation, the edges, and the titles of the columns: sources, views by how far
 * they are from sources, sinks, and tables that a sink writes and no view reads.
 */
export function columnsOf(relations) {
  const byName = new Map(relations.map((relation) => [relation.name, relation]));
  const read = new Set(relations.flatMap(({ inputs }) => inputs));
  const written = new Set(relations.filter(({ kind, target }) => kind === "sink" && byName.has(target)).map(({ target }) => target));
  const isView = ({ kind }) => kind === "materialized view" || kind === "plain view";
  const levels = new Map();
  const levelOf = (name) => {
    if (!levels.has(name)) {
      levels.set(name, 1);
      const below = byName.get(name).inputs.filter((each) => byName.has(each) && isView(byName.get(each)));
      levels.set(name, 1 + Math.max(0, ...below.map(levelOf)));
    }
    return levels.get(name);
  };
  const views = relations.filter(isView);
  const last = Math.max(0, ...views.map(({ name }) => levelOf(name)));
  const wanted = new Map(relations.map((relation) => {
    const { name, kind } = relation;
    if (isView(relation)) return [name, levelOf(name)];
    if (kind === "sink") return [name, last + 1];
    return [name, written.has(name) && !read.has(name) ? last + 2 : 0];
  }));
  const used = [...new Set(wanted.values())].sort((a, b) => a - b);
  const columns = new Map([...wanted].map(([name, column]) => [name, used.indexOf(column)]));
  const links = relations.flatMap(({ name, inputs, target }) => [
    ...inputs.filter((input) => byName.has(input)).map((input) => ({ from: input, to: name })),
    ...(target !== null && byName.has(target) ? [{ from: name, to: target }] : []),
  ]);
  const titles = used.map((column) => (column === 0 ? "Sources" : column === 1 && last > 0 ? "Views" : column === last + 1 ? "Sinks" : column === last + 2 ? "Written by sinks" : ""));
  return { columns, links, titles };
}

function said(name, relation, pending, behind, rates) {
  const [worst] = problemsOf(relation);
  if (worst !== undefined) return worst.tone === "bad" ? relation.state : worst.text.length > 24 ? `${worst.text.slice(0, 23)}…` : worst.text;
  if (relation.kind === "materialized view") return relation.state === "lagging" ? `refreshed ${relation.freshness?.refresh ?? ""}`.trim() : currency(pending, behind);
  const rate = rates[name] ?? 0;
  if (rate > 0) return `${relation.kind} · ${compact(rate)} rows/s`;
  return relation.state === "running" || relation.state === "not stored" ? relation.kind : `${relation.kind} · ${relation.state}`;
}
