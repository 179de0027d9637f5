// The tab of rejected rows: by reason, each as it came, to be inserted again or acknowledged; and what came late.
import { action, listed } from "../actions.js";
import { send, ServerError } from "../api.js";
import { count, counted, errorBox, fill, h, loading, moment as timeOf, seconds } from "../dom.js";
import { groupsOf, lineOf } from "../rejects.js";
import { quoted } from "../sql.js";

const MOST_LISTED = 1000;
const MOST_SHOWN = 50;
const MOST_AGAIN = 200;

/** Show the rows of a stream or table that did not fit its columns. */
export function rejectedTab(place, relation) {
  const { name } = relation;
  const list = h("div", { class: "groups" }, loading());
  const said = h("span", { role: "status" });
  const tools = h("div", { class: "tools" });
  const open = new Set();
  let closed = false;
  let every = false;
  let rows = [];
  fill(place, lateness(relation), h("div", { class: "bar" }, said, tools), list);

  async function read() {
    try {
      rows = await listed(`SHOW REJECTS FOR ${quoted(name)} LIMIT ${MOST_LISTED}`);
      if (!closed) draw();
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      if (!closed) fill(list, errorBox({ ...error.error, span: null }));
    }
  }

  function draw() {
    const asking = rows.filter(({ acknowledged_at: at }) => at === null);
    const shown = every ? rows : asking;
    const some = rows.length < MOST_LISTED ? "" : `of the newest ${count(MOST_LISTED)}, `;
    fill(said, rows.length === 0 ? "" : `${some}${counted(asking.length, "row")} ${asking.length === 1 ? "asks" : "ask"} for attention, ${count(rows.length - asking.length)} acknowledged`);
    fill(tools, rows.length === 0 ? [] : [
      h("div", { class: "segments", role: "group", "aria-label": "Which rejected rows" }, [[false, "To do"], [true, "All"]].map(([value, label]) => h("button", {
        type: "button", "aria-pressed": String(every === value),
        onclick() {
          every = value;
          draw();
        },
      }, label))),
      acknowledge("Acknowledge all…", null, asking.length),
    ]);
    const groups = groupsOf(shown, relation.columns.map((column) => column.name));
    fill(list, groups.length === 0 ? h("p", { class: "note" }, rows.length === 0 ? "Every row that has come fits the columns." : "All rejected rows are acknowledged.") : groups.map(groupOf));
  }

  const acknowledge = (label, ids, n) => action(label, {
    role: relation.role, needs: "writer", where: `the schema of ${name}`, unable: n === 0 ? "All of them are acknowledged." : null,
    title: "Acknowledge rejected rows", sql: `ACKNOWLEDGE REJECTS ${ids === null ? "" : `${ids.join(", ")} `}FOR ${quoted(name)}`,
    does: "They need no attention any more: they are no problem of the relation. They stay listed here, with their reason.", done: read,
  });

  function groupOf({ key, column, reason, rejects }) {
    const asking = rejects.filter(({ acknowledged_at: at }) => at === null);
    const [newest, oldest] = [rejects[0], rejects.at(-1)].map((each) => timeOf(Date.parse(each.at) / 1000));
    const body = h("div");
    const details = h("details", {
      open: open.has(key),
      ontoggle() {
        if (details.open) open.add(key);
        else open.delete(key);
        if (details.open && body.childElementCount === 0) fill(body, rejects.slice(0, MOST_SHOWN).map(rowOf), rejects.length > MOST_SHOWN ? h("p", { class: "note" }, `and ${count(rejects.length - MOST_SHOWN)} more`) : null);
      },
    }, h("summary", {}, h("span", { class: "count" }, count(rejects.length)), h("span", {}, column ? [h("code", {}, column), " "] : null, reason), h("span", { class: "dim" }, newest === oldest ? newest : `${oldest} to ${newest}`)), body);
    return h("section", { class: "group", "aria-label": `${counted(rejects.length, "row")}: ${reason}` }, details,
      h("div", { class: "buttons" }, again(asking.length ? asking : rejects), acknowledge("Acknowledge…", asking.map(({ id }) => id), asking.length)));
  }

  const rowOf = (row) => h("div", { class: row.acknowledged_at === null ? "reject" : "reject done" },
    h("pre", { class: "raw", tabindex: "0", "aria-label": "Row as it came" }, row.raw || " "),
    h("p", { class: "why" }, row.column ? h("code", {}, `${row.column}: `) : null, row.reason),
    h("p", { class: "dim" }, `${row.file ?? ""}${row.line === null ? "" : `, line ${count(row.line)}`} · ${timeOf(Date.parse(row.at) / 1000)}${row.acknowledged_at === null ? "" : ` · acknowledged ${timeOf(Date.parse(row.acknowledged_at) / 1000)}`}`),
    again([row]));

  function again(rejects) {
    const connector = relation.source?.connector;
    const ids = rejects.map(({ id }) => id);
    return action("Insert again…", {
      role: relation.role, needs: "writer", where: `the schema of ${name}`, unable: connector ? `${name} gets its rows from ${connector} alone: correct the row there.` : rejects.length > MOST_AGAIN ? `At most ${count(MOST_AGAIN)} rows are inserted again at once.` : null,
      title: `Insert ${rejects.length === 1 ? "a row" : `${count(rejects.length)} rows`} into ${name} again`,
      does: "Correct what does not fit, one row a line, as JSON. All lines are inserted or none; the rejected rows are acknowledged then.",
      fields: [{ name: "rows", label: `Rows with ${relation.columns.map((column) => column.name).join(", ")}`, lines: Math.min(14, Math.max(4, rejects.length + 2)), class: "mono", required: true, ".value": rejects.map(({ raw }) => lineOf(raw, relation.columns)).join("\n") }],
      sql: `-- appended by POST /v1/streams/${name}, then:\nACKNOWLEDGE REJECTS ${ids.join(", ")} FOR ${quoted(name)}`,
      async run({ rows: lines }, signal) {
        const found = await send("POST", `/v1/streams/${encodeURIComponent(name)}`, undefined, { signal, body: `${lines}\n`, headers: { "Content-Type": "application/x-ndjson" } });
        await send("POST", "/v1/sql", { sql: `ACKNOWLEDGE REJECTS ${ids.join(", ")} FOR ${quoted(name)}` }, { signal });
        return { kind: "done", message: `inserted ${counted(found.rows ?? lines.split("\n").filter((line) => line.trim()).length, "row")}, and acknowledged what was rejected` };
      },
      done: read,
    });
  }

  read();
  return () => {
    closed = true;
  };
}

/** What came late or twice, with the watermark that decides it. */
function lateness({ source }) {
  if (source === null || (source.late === null && source.watermark === null && source.duplicates === null)) return null;
  const found = [];
  if (source.late !== null) found.push(["Late rows", count(source.late), "Rows whose time had passed when they came: before the watermark, less the allowed lateness"]);
  if (source.watermark !== null) found.push(["Watermark", timeOf(source.watermark), "Events before this time are not expected any more"]);
  if (source.delay !== null) found.push(["Delay", source.delay === 0 ? "none" : seconds(source.delay), "How far the watermark stays behind the newest event"]);
  if (source.lateness !== null) found.push(["Allowed lateness", seconds(source.lateness), "How long after the watermark a row is still taken"]);
  if (source.duplicates !== null) found.push(["Duplicates", count(source.duplicates), "Rows whose id was known"]);
  return h("dl", { class: "facts" }, found.map(([label, value, meaning]) => h("div", { title: meaning }, h("dt", {}, label), h("dd", {}, value))));
}
