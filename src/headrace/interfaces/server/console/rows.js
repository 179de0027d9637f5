// A table of rows that stays current: a snapshot, then the changes of whole epochs.
import { fill, grouped, h, shown } from "./dom.js";

const MOST_DRAWN = 500;
const LIT_MILLISECONDS = 1200;
const NUMERIC = /^(tinyint|smallint|int|bigint|float|double|decimal)/;
const NAMED = /(^|_)(id|no|nr|number|code|key|year|port|zip|version)$/i;
const collator = new Intl.Collator("en", { numeric: true });

/** The head of a table of rows; a click on a column calls `sort` with its number. */
export function headOf(columns, key = [], sort = null) {
  return h("thead", {}, h("tr", {}, columns.map(({ name, type }, index) => {
    const label = [name, " ", h("span", { class: "type" }, key.includes(name) ? `${type} key` : type)];
    const numeric = NUMERIC.test(type) ? "num" : null;
    if (sort === null) return h("th", { class: numeric, scope: "col" }, label);
    const button = h("button", { type: "button", class: "sort", onclick: () => sort(index) }, label);
    return h("th", { class: numeric, scope: "col" }, button);
  })));
}

/** The cells of one row; digits are grouped, but those of a key or of a column whose name says that it counts nothing. */
export function cellsOf(columns, values, key = []) {
  return columns.map(({ name, type }, index) => {
    const value = values[index];
    const missing = value === null || value === undefined;
    const numeric = NUMERIC.test(type);
    const kind = [numeric ? "num" : null, missing ? "null" : null].filter(Boolean).join(" ") || null;
    const words = !missing && numeric && !key.includes(name) && !NAMED.test(name) ? grouped(value) : shown(value);
    return h("td", { class: kind, title: words.length > 40 ? words : null }, words);
  });
}

/** Rows with their weights, as a subscriber knows them. */
export class LiveRows {
  constructor(key) {
    this.key = key;
    this.columns = [];
    this.rows = new Map();
    this.parts = [];
  }

  /** Take an event; return the changes that it completes, or null if it does not. */
  take(kind, data) {
    if (kind !== "snapshot" && kind !== "changes") return null;
    if (data.part === 0) this.parts = [];
    this.parts.push(data);
    if (!data.last) return null;
    const parts = this.parts;
    this.parts = [];
    if (kind === "snapshot") {
      this.columns = parts[0].columns;
      this.rows = new Map();
      for (const part of parts) for (const row of part.rows) this.add(row, 1);
      return [];
    }
    const changes = parts.flatMap((part) => part.changes);
    for (const { row, weight } of changes) this.add(row, weight);
    return changes;
  }

  add(row, weight) {
    const id = JSON.stringify(row);
    const held = this.rows.get(id);
    if (held !== undefined) {
      held.weight += weight;
      if (held.weight === 0) this.rows.delete(id);
    } else {
      this.rows.set(id, { row, weight });
    }
  }

  /** What identifies a row to a reader: its key, or the whole. */
  keyOf(row) {
    return JSON.stringify(this.key.length ? this.key.map((name) => row[name]) : row);
  }

  /** How many rows there are. */
  get count() {
    let found = 0;
    for (const { weight } of this.rows.values()) found += Math.max(0, weight);
    return found;
  }
}

/**
 * A table that draws rows; what has changed since the last drawing lights up.
 *
 * Elements stay where their rows do, so that a selection, the focus and the place scrolled to do too.
 */
export function rowTable() {
  const body = h("tbody");
  let table = h("table", { class: "data" }, body);
  const element = h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Rows" }, table);
  let order = null;
  let drawn = new Map();
  let columns = [];
  let rows = null;
  let note = "";

  function sort(index) {
    order = order?.index === index ? { index, down: !order.down } : { index, down: false };
    mark();
    if (rows !== null) draw(rows, note);
  }

  function mark() {
    [...table.tHead.rows[0].cells].forEach((cell, index) => {
      if (order?.index === index) cell.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
  }

  function begin(live) {
    columns = live.columns;
    table = h("table", { class: "data" }, headOf(columns, live.key, sort), body);
    fill(body);
    fill(element, table);
    drawn = new Map();
    mark();
  }

  /** Return the element of a row, made or brought up to date. */
  function lineOf(id, row, weight, lights) {
    const values = columns.map(({ name }) => row[name]);
    const known = drawn.get(id);
    if (known === undefined) {
      const line = h("tr", {}, cellsOf(columns, values, rows.key));
      if (weight > 1) line.cells[0].append(times(weight));
      if (lights) light(line.cells, "--good-soft");
      return { line, values, weight };
    }
    if (known.weight === weight && known.values.every((value, index) => same(value, values[index]))) return known;
    const changed = cellsOf(columns, values, rows.key).filter((cell, index) => {
      if (same(known.values[index], values[index])) return false;
      known.line.cells[index].replaceWith(cell);
      return true;
    });
    known.line.querySelector(".times")?.remove();
    if (weight > 1) known.line.cells[0].append(times(weight));
    light(changed, "--accent-soft");
    return { line: known.line, values, weight };
  }

  function draw(live, filter) {
    rows = live;
    note = filter;
    if (columns !== live.columns) begin(live);
    let found = [...live.rows.values()].filter(({ weight }) => weight > 0);
    if (filter) found = found.filter(({ row }) => Object.values(row).some((value) => shown(value).toLowerCase().includes(filter)));
    const by = (order === null ? keyColumns(live) : [order.index]).map((index) => columns[index].name);
    found.sort((a, b) => compared(a.row, b.row, by) * (order?.down ? -1 : 1));
    const lights = drawn.size > 0;
    const after = new Map();
    for (const { row, weight } of found.slice(0, MOST_DRAWN)) {
      const key = live.keyOf(row);
      const id = after.has(key) ? JSON.stringify(row) : key;
      after.set(id, lineOf(id, row, weight, lights));
    }
    for (const [id, { line }] of drawn) if (!after.has(id)) line.remove();
    [...after.values()].forEach(({ line }, index) => {
      if (body.rows[index] !== line) body.insertBefore(line, body.rows[index] ?? null);
    });
    drawn = after;
    return { total: found.length, drawn: after.size };
  }

  return { element, draw };
}

const still = matchMedia("(prefers-reduced-motion: reduce)");

/** Light up cells, and fade them in few steps: smoothly would cost a frame's work sixty times a second. */
function light(cells, colour) {
  if (still.matches) return;
  const frames = [{ backgroundColor: `var(${colour})` }, { backgroundColor: "transparent" }];
  for (const cell of cells) cell.animate(frames, { duration: LIT_MILLISECONDS, easing: "steps(2)" });
}

const times = (weight) => h("span", { class: "dim times" }, ` ×${weight}`);

const same = (one, other) => one === other || (typeof one === "object" && shown(one) === shown(other));

function keyColumns(live) {
  const found = live.key.map((name) => live.columns.findIndex((column) => column.name === name)).filter((index) => index >= 0);
  return found.length ? found : live.columns.map((_column, index) => index);
}

function compared(a, b, names) {
  for (const name of names) {
    const [left, right] = [a[name], b[name]];
    if (left === right) continue;
    if (left === null || left === undefined) return 1;
    if (right === null || right === undefined) return -1;
    const found = typeof left === "number" && typeof right === "number" ? left - right : collator.compare(shown(left), shown(right));
    if (found !== 0) return found;
  }
  return 0;
}
