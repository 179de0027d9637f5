// Candidates: what waits to serve in the place of a view, what has served before, and what is being filled.
import { action, listed } from "../actions.js";
import { ServerError } from "../api.js";
import { watchCatalog } from "../catalog.js";
import { count, counted, errorBox, fill, h, linkTo, loading, moment, seconds, text, toned } from "../dom.js";
import { listing } from "../listing.js";
import { includes, inOrder } from "../objects.js";
import { quoted, sqlBlock } from "../sql.js";

const EXAMPLE = `CREATE OR REPLACE MATERIALIZED VIEW totals WITH (auto_swap = false) AS
SELECT name, sum(price) AS total, count(*) AS orders FROM orders GROUP BY name;`;
const STATES = { waits: ["warn", "ready to be swapped in"], "served before": ["idle", "served before; can be rolled back to"], "being filled": ["", "being filled"] };
const LONGEST = 160;

export function candidates(main) {
  const list = h("div", { class: "stack" }, loading());
  const fills = listing("Running fills", ["Name", "Kind", "State", "Progress", ["Began", { class: "num" }], [h("span", { class: "visually-hidden" }, "Pause or resume"), {}]]);
  fill(main,
    h("div", { class: "head" }, h("h1", {}, "Candidates")),
    h("section", { class: "panel" }, h("div", { class: "title" }, h("h2", {}, "Running fills"), h("span", { class: "dim" }, "views, candidates and indexes whose rows are being computed")), fills.element),
    list);
  fills.wait();
  const cards = new Map();
  let shown = null;
  return watchCatalog(({ candidates: found, fills: running }) => {
    drawFills(fills, running);
    const shape = JSON.stringify(found.map(({ name, state, kept_until: until, swapped_with: others }) => [name, state, until, others]));
    if (shape === shown) return;
    shown = shape;
    for (const name of [...cards.keys()]) if (!found.some((each) => each.name === name && cards.get(name).state === each.state)) cards.delete(name);
    fill(list, found.length === 0 ? nothing() : inOrder(found).map((each) => {
      if (!cards.has(each.name)) cards.set(each.name, { state: each.state, element: cardOf(each, found.filter(({ swapped_with: others }) => others?.split(", ").includes(each.name)).map(({ name }) => name)) });
      return cards.get(each.name).element;
    }));
  });
}

const nothing = () => h("section", { class: "panel" }, h("div", { class: "empty" },
  h("h2", {}, "No view has a candidate"),
  h("p", {}, "A candidate is filled beside its view and kept up to date, until it is swapped in or dropped. One is made by:"),
  h("pre", {}, EXAMPLE),
  h("a", { class: "button", href: `#/workbench/sql/${encodeURIComponent(EXAMPLE)}` }, "Open in the workbench")));

function drawFills(table, running) {
  const focused = document.activeElement?.closest?.("tr")?.dataset.fill;
  table.set(running.map((each) => {
    const paused = each.state === "paused" || each.state === "pausing";
    const [label, sql] = paused ? ["Resume", `RESUME FILL OF VIEW ${quoted(each.name)}`] : ["Pause", `PAUSE FILL OF VIEW ${quoted(each.name)}`];
    const total = each.rows_total;
    return h("tr", { "data-fill": each.name },
      h("td", {}, h("span", { class: "name" }, each.name)), h("td", { class: "dim" }, each.kind), h("td", {}, toned(paused ? "idle" : "", each.state)),
      h("td", {}, total ? h("progress", { max: total, value: each.rows_done, "aria-label": `Fill of ${each.name}` }) : null,
        h("div", {}, `${count(each.rows_done)}${total === null ? "" : ` of ${count(total)}`} rows${each.rows_per_second ? `, ${count(Math.round(each.rows_per_second))} rows/s` : ""}${each.seconds_left && !paused ? `, ${seconds(each.seconds_left)} left` : ""}`)),
      h("td", { class: "num dim" }, moment(each.began_at)),
      h("td", {}, action(label, {
        title: `${label} the fill of ${each.name}`, sql: each.kind === "index" ? sql.replace(" VIEW ", " ") : sql, role: each.role, where: `the schema of ${each.name}`,
        does: paused ? "It goes on reading where it was, and then reads what has changed meanwhile." : "It does no work until it is resumed; epochs, reads and other fills go on. The statement that fills goes on waiting.",
      })));
  }), "Nothing is being filled now.");
  if (focused !== undefined) table.body.querySelector(`[data-fill="${CSS.escape(focused)}"] button`)?.focus();
}

/** The card of a candidate: what it is, what can be done with it, and what a swap would change; `followers` go with it. */
function cardOf(candidate, followers) {
  const { name, state, role, swapped_with: root } = candidate;
  const served = state === "served before";
  const view = quoted(name);
  const [tone, words] = STATES[state];
  const filling = state === "being filled" ? "It is being filled." : null;
  const together = followers.length ? ` ${followers.join(", ")} ${followers.length === 1 ? "goes" : "go"} with it.` : "";
  const base = { role, where: `the schema of ${name}`, unable: filling };
  const exchange = served
    ? action("Roll back…", { ...base, primary: true, title: `Roll back ${name}`, sql: `ROLLBACK VIEW ${view}`, does: `What served before serves again from the next epoch on; readers, sinks and views over it get the difference.${together}` })
    : action("Swap…", { ...base, primary: true, title: `Swap in the candidate of ${name}`, sql: `SWAP VIEW ${view}`, does: `The candidate serves from the next epoch on; nothing is computed again, and readers, sinks and views over it get the difference.${together} What serves now is kept, so that it can be rolled back.` });
  const drop = action("Drop…", { ...base, harms: true, unable: null, title: `Drop the candidate of ${name}`, sql: `DROP CANDIDATE OF VIEW ${view}`, does: `${served ? "The former program and its state are given up: the view cannot be rolled back to it any more." : "The candidate and its state are given up. The view itself goes on as it is."}${together}` });
  const { button, place } = differenceButton(candidate, filling);
  return h("section", { class: root ? "panel follower" : "panel", "aria-label": `Candidate of ${name}` },
    h("div", { class: "title" }, h("h2", {}, h("a", { href: linkTo(name) }, name)), root ? h("span", { class: "dim" }, `goes with ${root}`) : toned(tone, words),
      h("div", { class: "tools" }, button,
        action("Validate…", { ...base, title: `Validate the candidate of ${name}`, sql: `VALIDATE VIEW ${view}`, does: "Its rows are compared with its query, run by Spark over the whole history. Nothing is changed; it can take as long as filling it." }),
        root ? null : [exchange, drop])),
    h("p", { class: "about" }, aboutOf(candidate)),
    place,
    candidate.view_definition ? h("details", { class: "definition" }, h("summary", {}, served ? "Former query" : "New query"), sqlBlock(candidate.view_definition)) : null);
}

/** The button that shows the difference of a candidate, and the place where it does. */
function differenceButton({ name, role, state }, filling) {
  const place = h("div", { class: "difference" });
  const unable = filling ?? (includes(role, "owner") ? null : `Role owner in the schema of ${name} is needed.`);
  const button = h("button", {
    type: "button", class: "action small", "aria-expanded": "false", "aria-disabled": unable === null ? null : "true", title: unable,
    async onclick() {
      if (unable !== null) return;
      const open = button.getAttribute("aria-expanded") !== "true";
      button.setAttribute("aria-expanded", String(open));
      text(button, open ? "Hide difference" : "Show difference");
      fill(place, open ? loading() : null);
      if (!open) return;
      try {
        fill(place, differenceOf(await listed(`SHOW DIFF ${quoted(name)}`), state === "served before"));
      } catch (error) {
        if (!(error instanceof ServerError)) throw error;
        fill(place, errorBox({ ...error.error, span: null }));
      }
    },
  }, "Show difference");
  return { button, place };
}

/** Say what is special about a candidate. */
function aboutOf({ state, same_columns: same, kept_until: until }) {
  const columns = same === false ? "It has other columns than the view serves now." : "It has the columns that the view serves now.";
  if (state !== "served before") return columns;
  return `${columns} It is kept ${until === null ? "until it is dropped" : `until ${moment(until)}`}, and maintained until then.`;
}

const KINDS = { added: ["plus", "added"], gone: ["minus", "gone"], changed: ["changed", "changed"], "new column": ["plus", "new column"], "dropped column": ["minus", "dropped column"], "other type": ["changed", "another type"] };
const kindOf = (change) => KINDS[change] ?? ["changed", change];

/** What SHOW DIFF answers: how many rows by kind, then the columns that change, each with examples. */
export function differenceOf(rows, served) {
  const total = (change) => rows.find((row) => row.change === change && row.column === null)?.rows ?? 0;
  const columns = rows.filter(({ change }) => change.endsWith("column") || change === "other type");
  const sums = ["added", "gone", "changed"].map((change) => [change, total(change)]);
  const verb = served ? "A rollback" : "A swap";
  if (columns.length === 0 && sums.every(([, n]) => n === 0)) return h("p", { class: "note" }, `${verb} would change no row.`);
  const lines = rows.filter(({ change, column, rows: n, examples }) => column !== null || (n > 0 && (change !== "changed" || examples !== "[]")));
  const table = listing("Difference", ["Change", "Column", ["Rows", { class: "num" }], "Examples"], { kind: "listed" });
  table.set(lines.map(({ change, column, rows: n, examples }) => h("tr", {},
    h("td", { class: `op ${kindOf(change)[0]}` }, kindOf(change)[1]), h("td", {}, column ?? h("span", { class: "dim" }, "whole rows")), h("td", { class: "num" }, n === null ? "" : count(n)),
    h("td", { class: "examples" }, examplesOf(examples, change === "other type")))));
  return h("div", {},
    h("p", { class: "sums" }, `${verb} would change: `, sums.map(([change, n]) => h("span", { class: n === 0 ? "dim" : `op ${kindOf(change)[0]}` }, `${counted(n, "row")} ${change}`))),
    lines.length ? table.element : null);
}

/** Examples of rows, or of what is `named`, such as types. */
function examplesOf(text_, named) {
  let found = [];
  try {
    found = JSON.parse(text_) ?? [];
  } catch {
    return text_;
  }
  const short = (value) => {
    if (named) return String(value);
    const words = typeof value === "object" && value !== null ? Object.entries(value).map(([key, each]) => `${key} ${JSON.stringify(each)}`).join(", ") : JSON.stringify(value);
    return words.length > LONGEST ? `${words.slice(0, LONGEST - 1)}…` : words;
  };
  return found.map((each) => h("div", { class: "mono" }, Array.isArray(each) ? `${short(each[0])} → ${short(each[1])}` : short(each)));
}
