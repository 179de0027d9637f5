// The workbench: statements with completion, errors at their place, results once or as they change.
import { listen, send, ServerError } from "../api.js";
import { count, errorBox, fill, h, seconds, text } from "../dom.js";
import { refresh, watchCatalog } from "../catalog.js";
import { editor } from "../editor.js";
import { cellsOf, headOf, LiveRows, rowTable } from "../rows.js";

const DRAFT = "headrace.draft";
const MOST_DRAWN = 1000;
const DRAW_MILLISECONDS = 250;
const PUSH = /^\s*(?:subscribe\s+(?:to\s+)?)?([\s\S]*?)(?:\s+emit\s+changes)?\s*;?\s*$/i;
const IS_PUSH = /^\s*subscribe\b|\bemit\s+changes\s*;?\s*$/i;
const MANY = /;[\s\S]*\S/;

let session = null;

export function workbench(main, relation) {
  const result = h("section", { class: "panel" });
  const said = h("span", { role: "status" });
  const draft = relation ? `SELECT * FROM ${relation} LIMIT 100` : sessionStorage.getItem(DRAFT) ?? "";
  let stop = null;
  let made = null;
  let running = false;

  const run = h("button", { type: "button", class: "action primary", onclick: () => start(false) }, "Run ", h("kbd", {}, "Ctrl ↵"));
  const follow = h("button", { type: "button", class: "action", title: "Show the rows, then every change", onclick: () => start(true) }, "Follow");
  const cancel = h("button", { type: "button", class: "action", disabled: true, onclick: () => stop?.() }, "Cancel");
  const place = h("section", { class: "panel" });
  const tree = h("div", { class: "tree" });
  fill(main,
    h("div", { class: "head" }, h("h1", {}, "Workbench")),
    h("div", { class: "workbench" },
      h("div", {}, place, result),
      h("aside", { class: "panel", "aria-label": "Relations" }, h("div", { class: "title" }, h("h2", {}, "Relations")), tree)));
  fill(result, h("p", { class: "note" }, "Results appear here. Run executes the selection, or everything; Follow keeps a query's rows current."));

  function start(push) {
    // What runs may change data: it is ended by Cancel alone. A query that is followed gives way.
    if (running) return;
    stop?.();
    made.mark(null);
    const { sql, from } = made.asked;
    if (!sql.trim()) return;
    const follows = (push || IS_PUSH.test(sql)) && !MANY.test(sql);
    const busy = (value) => {
      cancel.disabled = !value;
      running = value && !follows;
      for (const each of [run, follow]) each.setAttribute("aria-disabled", String(running));
    };
    busy(true);
    const end = follows ? followed(sql, from) : ran(sql, from);
    stop = () => {
      end.stop();
      stop = null;
      busy(false);
    };
    end.over.then(() => busy(false));
  }

  function fail(error, sql, from) {
    fill(result, errorBox(error));
    text(said, "");
    const at = placeOf(error.span, sql);
    if (at !== null) made.mark({ from: at.from + from, to: at.to + from });
  }

  function ran(sql, from) {
    const abort = new AbortController();
    const began = performance.now();
    const timer = setInterval(() => text(said, `running for ${seconds((performance.now() - began) / 1000)}`), 200);
    const over = (async () => {
      try {
        const found = await inSession(sql, abort.signal);
        text(said, "");
        const took = seconds((performance.now() - began) / 1000);
        fill(result, answer(found, took));
        refresh();
      } catch (error) {
        if (error instanceof ServerError) fail(error.error, sql, from);
        else if (error.name === "AbortError") fill(result, h("p", { class: "note" }, MANY.test(sql) ? "Cancelled. Statements before the one that ran have taken effect." : "Cancelled."));
        else throw error;
        text(said, "");
      } finally {
        clearInterval(timer);
      }
    })();
    return { stop: () => abort.abort(), over };
  }

  function followed(sql, from) {
    const live = new LiveRows([]);
    const table = rowTable();
    const status = h("span", {}, "reading");
    let changes = 0;
    let timer = null;
    let end = () => {};
    const over = new Promise((resolve) => {
      end = resolve;
    });
    fill(result, h("div", { class: "bar" }, h("span", { class: "dot", "aria-hidden": "true" }), status), table.element);
    const draw = (data) => {
      timer = null;
      const { total } = table.draw(live, "");
      text(status, `following: ${count(total)} row${total === 1 ? "" : "s"}, ${count(changes)} change${changes === 1 ? "" : "s"} · epoch ${data.epoch}`);
    };
    const stream = listen("/v1/subscribe", { sql: PUSH.exec(sql)[1].replace(/;\s*$/, "") }, {
      restart: () => live.rows.clear(),
      error(error) {
        fail(error, sql, from);
        end();
      },
      event(kind, data) {
        const taken = live.take(kind, data);
        changes += taken?.length ?? 0;
        if (taken !== null || kind === "progress") timer ??= setTimeout(draw, DRAW_MILLISECONDS, data);
      },
    });
    return {
      over,
      stop() {
        stream.stop();
        text(status, `${status.textContent}, stopped`);
        end();
      },
    };
  }

  fill(place, h("p", { class: "note" }, "Waiting for the server."));

  /** The keywords of the editor are those of the catalog, so it is made when that is known. */
  const ends = [watchCatalog(({ relations }) => {
    if (made === null) {
      made = editor(draft, { run: () => start(false), changed: (value) => sessionStorage.setItem(DRAFT, value) });
      fill(place, made.element, h("div", { class: "bar" }, run, follow, cancel, said));
      if (matchMedia("(min-width: 821px)").matches) made.focus();
    }
    drawTree(tree, relations, (name) => made.insert(name));
  })];
  return () => {
    stop?.();
    made?.close();
    for (const end of ends) end();
  };
}

/** Run statements in the session of this page, so that its settings and writes are seen. */
async function inSession(sql, signal) {
  for (let tries = 0; ; tries += 1) {
    session ??= (await send("POST", "/v1/sessions", undefined, { signal })).session;
    try {
      return await send("POST", "/v1/sql", { sql, session, timeout: 3600 }, { signal });
    } catch (error) {
      // A session that was idle for too long has ended: its settings are gone.
      if (!(error instanceof ServerError) || error.status !== 410 || tries > 0) throw error;
      session = null;
    }
  }
}

function answer(found, took) {
  if (found.kind === "done") return [h("p", { class: "note" }, found.message || "Done", h("span", { class: "dim" }, ` · ${took}`))];
  const { columns, rows } = found;
  const drawn = rows.slice(0, MOST_DRAWN);
  const fresh = found.freshness === null ? "" : found.freshness.pending ? ` · ${count(found.freshness.pending)} changes pending` : " · current";
  const head = `${count(rows.length)} row${rows.length === 1 ? "" : "s"}${drawn.length < rows.length ? `, the first ${count(drawn.length)} shown` : ""} · epoch ${found.epoch}${fresh} · ${took}`;
  if (columns.length === 1 && columns[0].name === "plan") {
    return [h("div", { class: "bar" }, head), h("pre", { class: "sql", tabindex: "0" }, rows.map(([line]) => line).join("\n"))];
  }
  return [h("div", { class: "bar", role: "status" }, head),
    h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Result" }, h("table", { class: "data" }, headOf(columns), h("tbody", {}, drawn.map((values) => h("tr", {}, cellsOf(columns, values))))))];
}

/** Where an error is in what was run, in characters of JavaScript; null if it is elsewhere. */
function placeOf(span, sql) {
  if (!span) return null;
  const units = (points) => Array.from(span.text).slice(0, points).join("").length;
  const base = sql.indexOf(span.text);
  return base < 0 ? null : { from: base + units(span.start), to: base + units(span.end) };
}

function drawTree(tree, relations, insert) {
  const open = new Set([...tree.querySelectorAll("details[open]")].map((each) => each.dataset.name));
  const shape = JSON.stringify(relations.map((r) => [r.name, r.columns]));
  if (tree.dataset.shape === shape) return;
  tree.dataset.shape = shape;
  fill(tree, relations.filter(({ kind }) => kind !== "sink").map(({ name, columns }) => h("details", { "data-name": name, open: open.has(name) },
    h("summary", { ondblclick: () => insert(name) }, name),
    h("ul", {}, columns.map((column) => h("li", {}, column.name, h("span", {}, column.type)))))));
  if (relations.length === 0) fill(tree, h("p", { class: "note" }, "None yet."));
}
