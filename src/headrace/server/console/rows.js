// A table of rows that stays current: a snapshot, then the changes of whole epochs.
import { fill, h, shown } from "./dom.js";

const MOST_DRAWN = 500;
const NUMERIC = /^(tinyint|smallint|int|bigint|float|double|decimal)/;
const collator = new Intl.Collator("en", { numeric: true });

/** The head of a table of rows; a click on a column calls `sort` with its number. */
export function headOf(columns, key = [], sort = null) {
  return h("thead", {}, h("tr", {}, columns.map(({ name, type }, index) => {
    const label = [name, h("span", { class: "type" }, key.includes(name) ? `${type} key` : type)];
    const numeric = NUMERIC.test(type) ? "num" : null;
    if (sort === null) return h("th", { class: numeric, scope: "col" }, label);
    const button = h("button", { type: "button", class: "sort", onclick: () => sort(index) }, label);
    return h("th", { class: numeric, scope: "col" }, button);
  })));
}

/** The cells of one row. */
export function cellsOf(columns, values) {
  return columns.map(({ type }, index) => {
    const value = values[index];
    const kind = value === null || value === undefined ? "null" : NUMERIC.test(type) ? "num" : null;
    return h("td", { class: kind, title: typeof value === "string" && value.length > 40 ? value : null }, shown(value));
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

/** A table that draws rows; what has changed since the last drawing lights up. */
export function rowTable() {
  const body = h("tbody");
  let table = h("table", { class: "data" }, body);
  const element = h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Rows" }, table);
  let order = null;
  let before = new Map();
  let columns = [];
  let rows = null;
  let note = "";

  function sort(index) {
    order = order?.index === index ? { index, down: !order.down } : { index, down: false };
    mark();
    if (rows !== null) draw(rows, note, false);
  }

  function mark() {
    [...table.tHead.rows[0].cells].forEach((cell, index) => {
      if (order?.index === index) cell.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
  }

  function draw(live, filter, lights = true) {
    rows = live;
    note = filter;
    if (columns !== live.columns) {
      columns = live.columns;
      table = h("table", { class: "data" }, headOf(columns, live.key, sort), body);
      fill(element, table);
      before = new Map();
      lights = false;
      mark();
    }
    let found = [...live.rows.values()].filter(({ weight }) => weight > 0);
    if (filter) found = found.filter(({ row }) => Object.values(row).some((value) => shown(value).toLowerCase().includes(filter)));
    const by = order === null ? keyColumns(live) : [order.index];
    found.sort((a, b) => compared(a.row, b.row, by.map((index) => columns[index].name)) * (order?.down ? -1 : 1));
    const total = found.length;
    const after = new Map();
    fill(body, found.slice(0, MOST_DRAWN).map(({ row, weight }) => {
      const values = columns.map(({ name }) => row[name]);
      const id = live.keyOf(row);
      const was = before.get(id);
      after.set(id, values);
      const cells = cellsOf(columns, values);
      if (lights && was !== undefined) {
        cells.forEach((cell, index) => {
          if (shown(was[index]) !== shown(values[index])) cell.classList.add("changed");
        });
      }
      if (weight > 1) cells[0].append(h("span", { class: "dim" }, ` ×${weight}`));
      return h("tr", { class: lights && was === undefined && before.size ? "fresh" : null }, cells);
    }));
    before = after;
    return { total, drawn: Math.min(total, MOST_DRAWN) };
  }

  return { element, draw };
}

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
