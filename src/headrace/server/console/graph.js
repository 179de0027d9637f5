// The graph of sources, views and sinks, laid out from left to right, or downwards on a phone.
import dagre from "./vendor/dagre.js";
import { compact, fill, h, health, linkTo, seconds, shortKind, svg, text } from "./dom.js";

const HEIGHT = 42;
const NARROW = 620;
const LONGEST = 28;

/** Make the graph. `set(relations)` lays it out; `tell(moment, rates)` writes what it shows now. */
export function graph() {
  const element = h("div", { class: "graph" });
  let drawn = null;
  let nodes = new Map();
  let edges = [];
  let last = [];

  function set(relations) {
    last = relations;
    if (relations.length === 0) return;
    const narrow = element.clientWidth > 0 && element.clientWidth < NARROW;
    const shape = JSON.stringify([narrow, relations.map((r) => [r.name, r.kind, r.inputs, r.target])]);
    if (shape !== drawn) {
      drawn = shape;
      draw(relations, narrow);
    }
    for (const relation of relations) {
      const node = nodes.get(relation.name);
      node.relation = relation;
      node.dot.setAttribute("class", health(relation.state));
    }
  }

  function draw(relations, narrow) {
    const loose = placed(relations, narrow, narrow ? 30 : 56);
    const ranks = new Set(loose.nodes().map((name) => Math.round(loose.node(name)[narrow ? "y" : "x"]))).size;
    const spare = element.clientWidth - 24 - loose.graph().width;
    const wider = narrow || ranks < 2 || spare < 20 ? loose : placed(relations, narrow, 56 + Math.min(120, spare / (ranks - 1)));
    render(relations, narrow, wider);
  }

  function placed(relations, narrow, ranksep) {
    const plan = new dagre.graphlib.Graph();
    plan.setGraph({ rankdir: narrow ? "TB" : "LR", nodesep: 14, ranksep, marginx: 4, marginy: 4 });
    plan.setDefaultEdgeLabel(() => ({}));
    const known = new Set(relations.map((relation) => relation.name));
    for (const relation of relations) {
      const length = Math.min(relation.name.length, LONGEST);
      plan.setNode(relation.name, { width: Math.max(132, 34 + length * 7.2), height: HEIGHT });
    }
    for (const relation of relations) {
      for (const input of relation.inputs) if (known.has(input)) plan.setEdge(input, relation.name);
      if (relation.target !== null && known.has(relation.target)) plan.setEdge(relation.name, relation.target);
    }
    dagre.layout(plan);
    return plan;
  }

  function render(relations, narrow, plan) {
    const { width, height } = plan.graph();
    const label = `${relations.length} sources, views and sinks, and what reads what`;
    const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label });
    edges = plan.edges().map((edge) => {
      const path = svg("path", { class: "edge", d: curve(plan.edge(edge).points, narrow) });
      root.append(path);
      return { from: edge.v, path };
    });
    nodes = new Map();
    for (const relation of relations) {
      const at = plan.node(relation.name);
      const dot = svg("circle", { cx: 13, cy: 15, r: 3.5 });
      const under = svg("text", { class: "under", x: 23, y: 33 }, shortKind(relation.kind));
      const name = relation.name.length > LONGEST ? `${relation.name.slice(0, LONGEST - 1)}…` : relation.name;
      root.append(svg("a", { href: linkTo(relation.name), transform: `translate(${at.x - at.width / 2},${at.y - HEIGHT / 2})`, "aria-label": `${relation.kind} ${relation.name}` },
        svg("title", {}, `${relation.kind} ${relation.name}`),
        svg("rect", { width: at.width, height: HEIGHT, rx: 6 }),
        dot,
        svg("text", { class: "name", x: 23, y: 19 }, name),
        under));
      nodes.set(relation.name, { dot, under, relation });
    }
    fill(element, root);
  }

  function tell(moment, rates) {
    for (const [name, { under, relation }] of nodes) text(under, said(name, relation, moment, rates));
    const flowing = new Map();
    const flows = (name) => {
      if (!flowing.has(name)) {
        flowing.set(name, false); // for a sink that writes to what it reads from
        flowing.set(name, (rates[name] ?? 0) > 0 || (nodes.get(name)?.relation.inputs ?? []).some(flows));
      }
      return flowing.get(name);
    };
    for (const { from, path } of edges) path.setAttribute("class", flows(from) ? "edge flows" : "edge");
  }

  const sized = new ResizeObserver(() => set(last));
  sized.observe(element);
  return { element, set, tell, close: () => sized.disconnect() };
}

function said(name, relation, moment, rates) {
  if (relation.state !== "running") return `${shortKind(relation.kind)} · ${relation.state}`;
  if (relation.kind === "materialized view") {
    const [pending, behind] = moment.views[name] ?? [0, 0];
    return pending === 0 ? "current" : `${seconds(behind)} behind`;
  }
  const rate = rates[name] ?? 0;
  return rate > 0 ? `${relation.kind} · ${compact(rate)}/s` : relation.kind;
}

function curve(points, narrow) {
  const [first, ...rest] = points;
  let path = `M${first.x},${first.y}`;
  let before = first;
  for (const point of rest) {
    const x = (before.x + point.x) / 2;
    const y = (before.y + point.y) / 2;
    path += narrow
      ? `C${before.x},${y} ${point.x},${y} ${point.x},${point.y}`
      : `C${x},${before.y} ${x},${point.y} ${point.x},${point.y}`;
    before = point;
  }
  return path;
}
