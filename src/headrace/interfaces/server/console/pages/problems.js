// The tabs of a relation's problems: rows in quarantine, dirty slices, refused and rejected rows, each with its reason.
import { action, listed } from "../actions.js";
import { count, counted, errorBox, fill, h, linkTo, loading, moment as timeOf, toned } from "../dom.js";
import { listing } from "../listing.js";
import { errorParts, problemsOf, unacknowledged } from "../problems.js";
import { quoted } from "../sql.js";

const MOST_LISTED = 200;

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
  const list = h("div", {}, loading());
  fill(place, h("div", { class: "bar" }, problemsOf(relation).map(({ tone, text: words }) => toned(tone, words)),
    h("div", { class: "tools" }, kind === "sink" && unacknowledged(relation.delivery) ? acknowledgeButton(relation, () => read()) : null, again)), list);
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

const acknowledgeButton = ({ name, role }, done) => action("Acknowledge…", {
  role, needs: "writer", where: `the schema of ${name}`, small: false, title: "Acknowledge refused rows", sql: `ACKNOWLEDGE REJECTS FOR ${quoted(name)}`,
  does: "They need no attention any more: they are no problem of the sink. They stay listed here, with their reason.", done,
});

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
