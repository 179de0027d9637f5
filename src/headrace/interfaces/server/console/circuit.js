// The program of a view as a graph: what each operator does, what it stores, its rows and its time.
import { bytes, compact, count, counted, fill, h, seconds, svg } from "./dom.js";
import { connected, layered, pathOf } from "./layers.js";
import { lightPaths, viewport } from "./viewport.js";

const WIDTH = 240;
const HEIGHT = 74;
const LETTERS = 33;
const WORDS = {
  Integrate: "View rows", Source: "Read", Project: "Compute columns", Filter: "Filter", InnerJoin: "Join", LeftJoin: "Left join", RightJoin: "Right join",
  FullJoin: "Full join", SemiJoin: "Semi join", AntiJoin: "Anti join", GroupAggregate: "Aggregate by group", Aggregate: "Recompute groups", Union: "Union",
  FirstRows: "First rows by group", Temporal: "Time filter", Compared: "Compare with a value", Window: "Window function", Fold: "Fold", Matches: "Count matches",
  Expand: "Expand", Generate: "Generate rows", Constant: "Constant rows", Loop: "Recursion", Feedback: "Previous round", Python: "Python",
};

/** The names of operators by the kinds that the server calls them by. */
export const OPERATORS = {
  join: "Join", matches: "Count matches", aggregate: WORDS.GroupAggregate, groups: WORDS.Aggregate, first: WORDS.FirstRows, fold: WORDS.Fold, temporal: WORDS.Temporal, compared: WORDS.Compared, loop: WORDS.Loop, constant: WORDS.Constant,
};

/** Make the graph of a circuit; `set(nodes)` draws it, and keeps what is selected. */
export function circuitGraph() {
  const place = viewport("Operators of the view", 0.8);
  const detail = h("div", { class: "operator", role: "status" });
  const element = h("div", {}, place.element, detail);
  let selected = null;
  let drawn = null;
  let lines = new Map();
  let elements = new Map();
  let last = new Map();

  function set(found) {
    const { nodes, edges } = connectedNodes(found);
    last = new Map(nodes.map((node) => [node.number, node]));
    const shape = JSON.stringify(nodes.map((node) => [node.number, node.title, node.column]));
    if (shape !== drawn) {
      drawn = shape;
      draw(nodes, edges);
    }
    for (const node of nodes) {
      const { stored, work } = lines.get(node.number);
      stored.textContent = storedOf(node);
      work.textContent = workOf(node.work);
    }
    show(selected);
  }

  function draw(nodes, edges) {
    const plan = layered(nodes.map((node) => ({ id: node.number, column: node.column, width: WIDTH, height: node.cost === null && node.arrangements.length === 0 ? 44 : HEIGHT })), edges, { gap: 44, between: 14, margin: 6 });
    const root = svg("svg", { viewBox: `0 0 ${plan.width} ${plan.height}`, role: "group", "aria-label": counted(nodes.length, "operator") });
    const paths = plan.edges.map((edge) => {
      const path = svg("path", { class: "edge", d: pathOf(edge) });
      root.append(path);
      return { edge, path };
    });
    lines = new Map();
    elements = new Map();
    for (const { id, x, y, height } of plan.nodes) {
      const node = last.get(id);
      const { word, rest } = wordsOf(node.title);
      const stored = svg("text", { class: "under", x: 12, y: 51 });
      const work = svg("text", { class: "under", x: 12, y: 66 });
      const made = svg("g", { class: "node", transform: `translate(${x},${y})`, tabindex: "0", role: "button", "aria-label": `${word} ${rest}`, onclick: () => show(id), onkeydown: (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), show(id)) },
        svg("title", {}, plain(node.title)),
        svg("rect", { width: WIDTH, height, rx: 6 }),
        svg("text", { class: "name", x: 12, y: 18 }, word),
        svg("text", { class: "under mono", x: 12, y: 34 }, rest.length > LETTERS ? `${rest.slice(0, LETTERS - 1)}…` : rest),
        height === HEIGHT ? [stored, work] : []);
      root.append(made);
      elements.set(id, made);
      lines.set(id, { stored, work });
    }
    lightPaths(root, elements, paths, connected);
    place.show(root, plan.width, plan.height);
  }

  function show(number) {
    selected = number;
    const node = last.get(number);
    for (const [id, element] of elements) {
      element.classList.toggle("selected", id === number);
      element.setAttribute("aria-pressed", String(id === number));
    }
    if (node === undefined) return fill(detail, h("p", { class: "dim" }, "Select an operator to see all of it. Rows and time are those since the server was started."));
    return fill(detail,
      h("p", { class: "mono" }, plain(node.title)),
      node.arrangements.map((each) => h("p", { class: "dim" }, each.relation === null ? `Stores rows by (${plain(each.key)}): ` : `Reads the rows of ${each.relation} by (${plain(each.key)}): `, `${counted(each.rows ?? 0, "entry", "entries")}, ${bytes(each.bytes)}`)),
      node.cost === null ? null : h("p", { class: "dim" }, `For each change: ${node.cost}.`),
      node.work === null ? null : h("p", { class: "dim" }, `In ${counted(node.work.epochs, "epoch")}: ${count(node.work.rows_in)} rows in, ${count(node.work.rows_out)} out, ${count(node.work.rows_read)} stored rows read, ${seconds(node.work.seconds)} of work${perChange(node.work)}.`));
  }

  return { element, set, close: place.close };
}

/** Return the nodes of a description, each once, with their columns, and the edges from inputs to users. */
export function connectedNodes(found) {
  const nodes = new Map();
  const edges = [];
  const above = [];
  for (const node of found) {
    above.length = node.depth;
    const user = above.at(-1);
    if (user !== undefined && !edges.some((edge) => edge.from === node.number && edge.to === user)) edges.push({ from: node.number, to: user });
    above.push(node.number);
    if (!node.again) nodes.set(node.number, { ...node, column: 0 });
  }
  const inputs = new Map([...nodes.keys()].map((number) => [number, edges.filter(({ to }) => to === number).map(({ from }) => from)]));
  const known = new Map();
  const columnOf = (number) => {
    if (!known.has(number)) {
      known.set(number, 0);
      known.set(number, Math.max(-1, ...inputs.get(number).map(columnOf)) + 1);
    }
    return known.get(number);
  };
  for (const node of nodes.values()) node.column = columnOf(node.number);
  return { nodes: [...nodes.values()], edges };
}

/** Return a title without the names that only Spark's plans have. */
export const plain = (title) => title.replaceAll("__auto_generated_subquery_name.", "").replace(/\s+/g, " ");

function wordsOf(title) {
  const [first] = title.split(/[\s:]/, 1);
  const rest = plain(title).slice(first.length).replace(/^\s*(by|on|of|:)\s*/i, "").replace(/, (linear|bilinear)$/, "").trim();
  const grouped = /^\((.*?)\): (.*)$/.exec(rest);
  const words = grouped === null ? rest.replace(/^\((.*)\)$/, "$1") : grouped[1] ? `${grouped[2]} by ${grouped[1]}` : grouped[2];
  return { word: WORDS[first] ?? first, rest: words };
}

/** Say how many rows follow from a change of the streams and tables below. */
function perChange(work) {
  if (!work.changes) return "";
  const [entering, leaving, read] = [work.rows_in, work.rows_out, work.rows_read].map((rows) => Number((rows / work.changes).toPrecision(3)).toLocaleString("en"));
  return `; per change ${entering} in, ${leaving} out, ${read} read`;
}

function storedOf({ arrangements }) {
  const own = arrangements.filter(({ relation }) => relation === null);
  if (own.length === 0) return arrangements.length ? "stores nothing of its own" : "stores nothing";
  const [rows, size] = own.reduce(([r, b], each) => [r + (each.rows ?? 0), b + (each.bytes ?? 0)], [0, 0]);
  return `stores ${compact(rows)} ${rows === 1 ? "entry" : "entries"}, ${bytes(size)}`;
}

function workOf(work) {
  if (work === null || work.epochs === 0) return "has not run yet";
  return `${compact(work.rows_in)} in, ${compact(work.rows_out)} out · ${seconds(work.seconds / work.epochs)} an epoch`;
}

