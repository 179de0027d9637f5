// The tabs of a relation's problems: rows in quarantine, dirty slices, refused and rejected rows, each with its reason.
import { send } from "../api.js";
import { count, counted, errorBox, fill, h, linkTo, moment as timeOf, toned } from "../dom.js";
import { listing } from "../listing.js";
import { errorParts, problemsOf } from "../problems.js";

const MOST_LISTED = 200;

const quoted = (name) => name.split(".").map((part) => `\`${part.replaceAll("`", "``")}\``).join(".");

/** Run a statement that lists something; return its rows as objects. */
async function listed(sql) {
  const { columns, rows } = await send("POST", "/v1/sql", { sql });
  return rows.map((row) => Object.fromEntries(columns.map(({ name }, index) => [name, row[index]])));
}

/** A titled table of rows; a column is a title, and a function to the cell of a row or its text. */
export function section(title, rows, columns, none_) {
  const table = listing(title, columns.map(([name, , kind]) => [name, { class: kind === "num" ? kind : null }]), { tall: true, kind: "listed" });
  table.set(rows.map((row) => h("tr", {}, columns.map(([, of, kind]) => {
    const value = of(row) ?? "";
    return h("td", { class: kind ?? null, title: typeof value === "string" && value.length > 80 ? value : null }, value);
  }))));
  return h("section", {}, h("div", { class: "bar" }, h("strong", {}, title)), rows.length === 0 ? h("p", { class: "note" }, none_) : table.element);
}

/** A row that is kept as JSON, each of its columns on a line. */
function jsonRow(json) {
  let row = null;
  try {
    row = JSON.parse(json);
  } catch {
    return json;
  }
  return h("dl", { class: "pairs" }, Object.entries(row ?? {}).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value === null ? "NULL" : typeof value === "object" ? JSON.stringify(value) : String(value))]).flat());
}

/** Rows on which a view's query failed or that a sink's target refused, and slices that are dirty. */
export function problemsTab(place, relation) {
  let closed = false;
  const { name, kind, state } = relation;
  const again = h("button", { type: "button", class: "action", onclick: () => read() }, "Read again");
  const list = h("div", {}, h("p", { class: "note" }, "Reading."));
  const hint = kind === "sink" ? `RESUME SINK ${name}` : `REPAIR ${name}`;
  fill(place, h("div", { class: "bar" }, problemsOf(relation).map(({ tone, text: words }) => toned(tone, words)),
    h("div", { class: "tools" }, state === "stopped" ? h("a", { class: "button", href: `#/workbench/sql/${encodeURIComponent(hint)}` }, kind === "sink" ? "Resume…" : "Repair…") : null, again)), list);
  async function read() {
    again.disabled = true;
    try {
      const errors = await listed(`SHOW ERRORS FOR ${quoted(name)}`);
      const dirty = kind === "materialized view" ? await listed(`SHOW DIRTY FOR ${quoted(name)}`) : [];
      const slices = dirty.filter(({ cause }) => cause !== "stopped");
      if (!closed) fill(list, kind === "sink" ? refusedList(errors) : [errorList(errors, state === "stopped"), slices.length ? dirtyList(slices) : null].filter(Boolean));
    } catch (error) {
      if (!closed) fill(list, errorBox({ ...error.error, span: null }));
    }
    again.disabled = false;
  }
  read();
  return () => {
    closed = true;
  };
}

/** An error as a listing has it: its text, and its detail and hint on lines of their own. */
export function errorText(value) {
  const { primary, detail, hint } = errorParts(value ?? "");
  return h("div", {}, primary, [detail, hint].filter(Boolean).map((each) => h("div", { class: "dim" }, each)));
}

const errorList = (errors, stopped) => section(stopped ? "Why it stopped, and rows in quarantine" : "Rows in quarantine: the query failed on them, so the view is its query over the other rows", errors.slice(0, MOST_LISTED), [
  ["Since", (row) => timeOf(Date.parse(row.since) / 1000), "dim nowrap"], ["Relation", (row) => (row.relation ? h("a", { href: linkTo(row.relation) }, row.relation) : "")],
  ["Row", (row) => (row.row ? jsonRow(row.row) : "")], ["Copies", (row) => (row.copies === null ? "" : count(row.copies)), "num"], ["Error", (row) => errorText(row.error), "why"],
], "No row is in quarantine: the view shows the result of its query over all rows.");

const dirtyList = (dirty) => section("Dirty slices: rows that may differ from the query's result until they are repaired", dirty.slice(0, MOST_LISTED), [
  ["Since", (row) => timeOf(Date.parse(row.since) / 1000), "dim nowrap"], ["Cause", (row) => row.cause], ["Slice", (row) => row.slice || "all rows"], ["Repair", (row) => row.repair], ["State", (row) => row.state], ["Detail", (row) => errorText(row.detail), "why"],
], "");

const refusedList = (errors) => section("Rows that the target refused", errors.slice(0, MOST_LISTED), Object.keys(errors[0] ?? {}).map((column) => [column, (row) => (column === "row" && row.row ? jsonRow(row.row) : row[column] === null ? "" : String(row[column])), column === "error" ? "why" : null]), "The target has refused no row.");

/** The rows of a source that did not fit its columns, with the reason and the place of each. */
export function rejectedTab(place, relation) {
  let closed = false;
  fill(place, h("p", { class: "note" }, "Reading."));
  listed(`SHOW REJECTS FOR ${quoted(relation.name)} LIMIT ${MOST_LISTED}`).then(
    (rows) => closed || fill(place, section(rows.length < MOST_LISTED ? `${counted(rows.length, "row")} rejected` : `The newest ${count(rows.length)} rejected rows`, rows, [
      ["Time", (row) => timeOf(Date.parse(row.at) / 1000), "dim nowrap"], ["Column", (row) => row.column], ["Reason", (row) => row.reason, "why"], ["Row as it came", (row) => row.raw, "mono raw"], ["Place", (row) => `${row.file ?? ""}:${row.line ?? ""}`, "dim"],
    ], "Every row that has come fits the columns.")),
    (error) => closed || fill(place, errorBox({ ...error.error, span: null })),
  );
  return () => {
    closed = true;
  };
}
