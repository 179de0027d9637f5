// The workbench: statements with completion, errors at their place, every result, once or as they change.
import { listen, send, ServerError } from "../api.js";
import { ago, count, counted, errorBox, fill, h, loading, seconds, text } from "../dom.js";
import { refresh, watchCatalog } from "../catalog.js";
import { csvOf, save } from "../csv.js";
import { editor } from "../editor.js";
import { recent, remember } from "../recent.js";
import { cellsOf, headOf, LiveRows, rowTable } from "../rows.js";
import { unitsOf } from "../span.js";

const DRAFT = "headrace.draft";
const MOST_DRAWN = 1000;
const DRAW_MILLISECONDS = 250;
const LONGEST = 90;
const RECENT_MILLISECONDS = 5000;
const PUSH = /^\s*(?:subscribe\s+(?:to\s+)?)?([\s\S]*?)(?:\s+emit\s+changes)?\s*;?\s*$/i;
const IS_PUSH = /^\s*subscribe\b|\bemit\s+changes\s*;?\s*$/i;
const IS_EXPLAIN = /^\s*explain\b/i;
const MANY = /;[\s\S]*\S/;
const UNEXPECTED = { code: "internal", detail: null, hint: "Reload the page; the statement may have taken effect.", span: null };

let session = null;

/** Show the workbench, with a query of a relation or a statement (`sql/...`) if one is given. */
export function workbench(main, relation, sql) {
  const results = h("div", { class: "results" });
  const said = h("span", { role: "status" });
  const given = relation === "sql" && sql !== undefined ? sql : relation ? `SELECT * FROM ${relation} LIMIT 100` : null;
  const draft = given ?? sessionStorage.getItem(DRAFT) ?? "";
  let stop = null;
  let made = null;
  let running = false;
  let tellRecent = () => {};

  const run = h("button", { type: "button", class: "action primary", onclick: () => start(ran) }, "Run ", h("kbd", {}, "Ctrl ↵"));
  const follow = h("button", { type: "button", class: "action", title: "Show the rows of a query, then every change", onclick: () => start(followed) }, "Follow");
  const explain = h("button", { type: "button", class: "action", title: "Show how the statement is computed, and what a change costs", onclick: () => start(explained) }, "Explain");
  const cancel = h("button", { type: "button", class: "action", disabled: true, onclick: () => stop?.() }, "Cancel");
  const place = h("section", { class: "panel" });
  const tree = h("div", { class: "tree" });
  const before = h("ul", { class: "recent" });
  fill(main,
    h("div", { class: "head" }, h("h1", {}, "Workbench")),
    h("div", { class: "workbench" },
      h("div", {}, place, results),
      h("aside", {},
        h("section", { class: "panel", "aria-label": "Relations" }, h("div", { class: "title" }, h("h2", {}, "Relations")), tree),
        h("section", { class: "panel", "aria-label": "History" }, h("div", { class: "title" }, h("h2", {}, "History"), h("span", { class: "dim" }, "of this browser")), before))));
  fill(results, h("section", { class: "panel" }, h("p", { class: "note" }, "Results appear here. Run executes the selection, or everything; Follow keeps a query's rows current.")));
  drawRecent();

  function drawRecent() {
    const found = recent();
    const whens = found.map(() => h("span", { class: "dim" }));
    tellRecent = () => found.forEach(({ ok, at }, index) => text(whens[index], ok ? ago(at) : `failed ${ago(at)}`));
    tellRecent();
    fill(before, found.map((each, index) => h("li", {}, h("button", {
      type: "button", class: "plain", title: each.sql,
      onclick() {
        made.text = each.sql;
        made.focus();
      },
    }, h("span", { class: `dot ${each.ok ? "" : "bad"}`, "aria-hidden": "true" }), h("span", { class: "mono" }, firstLine(each.sql)), whens[index]))));
    if (found.length === 0) fill(before, h("li", { class: "dim" }, "Nothing has been run yet."));
  }

  /** Run what is asked by one of the three ways; whatever becomes of it, the buttons are enabled again. */
  function start(way) {
    // What runs may change data: it is ended by Cancel alone. A query that is followed gives way.
    if (running || made === null) return;
    stop?.();
    made.mark(null);
    made.closeCompletion();
    const { sql: asked, from } = made.asked;
    if (!asked.trim()) return;
    const follows = way !== explained && (way === followed || IS_PUSH.test(asked)) && !MANY.test(asked);
    const busy = (value) => {
      cancel.disabled = !value;
      running = value && !follows;
      for (const each of [run, follow, explain]) each.setAttribute("aria-disabled", String(running));
    };
    busy(true);
    let end = null;
    const over = () => {
      if (stop === mine) stop = null;
      busy(false);
    };
    const mine = () => {
      end?.stop();
      over();
    };
    stop = mine;
    try {
      end = (follows ? followed : way === followed ? ran : way)(asked, from);
      end.over.catch((error) => show(h("section", { class: "panel" }, errorBox({ ...UNEXPECTED, primary: String(error?.message ?? error) })))).finally(() => stop === mine && over());
    } catch (error) {
      over();
      throw error;
    }
  }

  const show = (...children) => fill(results, children);

  /** Show an error, and mark its place in what was run, which begins at `from` in the editor. */
  function fail(error, sql_, from) {
    text(said, "");
    try {
      const at = unitsOf(error.span, sql_);
      if (at !== null) made.mark({ from: at.from + from, to: at.to + from });
    } catch {
      // The error is shown in any case.
    }
    return h("section", { class: "panel" }, errorBox(error));
  }

  function ran(asked, from) {
    const abort = new AbortController();
    const began = performance.now();
    let doing = "running";
    const timer = setInterval(() => text(said, `${doing} for ${seconds((performance.now() - began) / 1000)}`), 200);
    const over = (async () => {
      try {
        const statements = await split(asked, abort.signal);
        show();
        for (const [index, each] of statements.entries()) {
          if (statements.length > 1) doing = `statement ${index + 1} of ${statements.length}, running`;
          if (!(await one(each, from + each.from, abort.signal, statements.length > 1))) break;
        }
        refresh();
      } catch (error) {
        if (error.name === "AbortError") results.append(h("section", { class: "panel" }, h("p", { class: "note" }, MANY.test(asked) ? "Cancelled. Statements before the one that ran have taken effect." : "Cancelled.")));
        else if (error instanceof ServerError) show(fail(error.error, asked, from));
        else throw error;
      } finally {
        clearInterval(timer);
        text(said, "");
        drawRecent();
      }
    })();
    return { stop: () => abort.abort(), over };
  }

  /** Run one statement and show its result below the others; return whether to go on. */
  async function one(statement, from, signal, titled) {
    const began = performance.now();
    try {
      const found = await inSession(statement.sql, signal);
      remember(statement.sql, true);
      const took = seconds((performance.now() - began) / 1000);
      results.append(h("section", { class: "panel" }, titled ? h("div", { class: "bar mono", title: statement.sql }, firstLine(statement.sql)) : null, answer(found, took)));
      return true;
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      remember(statement.sql, false);
      results.append(fail(error.error, statement.sql, from));
      return false;
    }
  }

  function explained(asked, from) {
    const lead = IS_EXPLAIN.test(asked) ? "" : "EXPLAIN ";
    return ran(MANY.test(asked) || !lead ? asked : lead + asked, from - lead.length);
  }

  function followed(asked, from) {
    const live = new LiveRows([]);
    const table = rowTable();
    const status = h("span", {}, "reading");
    let changes = 0;
    let timer = null;
    let end = () => {};
    const over = new Promise((resolve) => {
      end = resolve;
    });
    show(h("section", { class: "panel" }, h("div", { class: "bar" }, h("span", { class: "dot", "aria-hidden": "true" }), status), table.element));
    const draw = (data) => {
      timer = null;
      const { total } = table.draw(live, "");
      text(status, `following: ${counted(total, "row")}, ${counted(changes, "change")}`);
      status.title = `As of epoch ${data.epoch}`;
    };
    const stream = listen("/v1/subscribe", { sql: PUSH.exec(asked)[1].replace(/;\s*$/, "") }, {
      restart: () => live.rows.clear(),
      error(error) {
        show(fail(error, asked, from));
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
        clearTimeout(timer);
        text(status, `${status.textContent}, stopped`);
        end();
      },
    };
  }

  fill(place, loading());

  /** The keywords of the editor are those of the catalog, so it is made when that is known. */
  const ends = [watchCatalog(({ relations }) => {
    if (made === null) {
      made = editor(draft, { run: () => start(ran), changed: (value) => sessionStorage.setItem(DRAFT, value) });
      fill(place, made.element, h("div", { class: "bar" }, run, follow, explain, cancel, said));
      if (matchMedia("(min-width: 821px)").matches) made.focus();
    }
    drawTree(tree, relations, (name) => made.insert(name));
  })];
  const aging = setInterval(() => tellRecent(), RECENT_MILLISECONDS);
  return () => {
    clearInterval(aging);
    stop?.();
    made?.close();
    for (const end of ends) end();
  };
}

function firstLine(sql) {
  const line = sql.trim().replace(/\s+/g, " ");
  return line.length > LONGEST ? `${line.slice(0, LONGEST - 1)}…` : line;
}

/** Return the statements of a script and where each begins, in JavaScript's units. */
async function split(sql, signal) {
  if (!MANY.test(sql)) return [{ sql, from: 0 }];
  const points = Array.from(sql);
  const { statements } = await send("POST", "/v1/script", { sql }, { signal });
  return statements.map((each) => ({ sql: each.sql, from: points.slice(0, each.start).join("").length }));
}

/** Run a statement in the session of this page, so that its settings and writes are seen. */
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
  const fresh = found.freshness === null ? "" : found.freshness.pending ? ` · ${counted(found.freshness.pending, "change")} not shown yet` : " · up to date";
  const head = h("span", { title: `As of epoch ${count(found.epoch)}` }, `${counted(rows.length, "row")}${drawn.length < rows.length ? `, the first ${count(drawn.length)} shown` : ""}${fresh} · ${took}`);
  if (columns.length === 1 && columns[0].name === "plan") {
    return [h("div", { class: "bar" }, took), h("pre", { class: "sql plan", tabindex: "0" }, rows.map(([line]) => line).join("\n"))];
  }
  const download = h("button", { type: "button", class: "action small", title: "Save all rows as CSV", onclick: () => save("result.csv", csvOf(columns, rows)) }, "CSV");
  return [h("div", { class: "bar", role: "status" }, head, h("span", { class: "spacer" }), download),
    h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Result" }, h("table", { class: "data" }, headOf(columns), h("tbody", {}, drawn.map((values) => h("tr", {}, cellsOf(columns, values))))))];
}

function drawTree(tree, relations, insert) {
  const open = new Set([...tree.querySelectorAll("details[open]")].map((each) => each.dataset.name));
  const shape = JSON.stringify(relations.map((r) => [r.name, r.columns]));
  if (tree.dataset.shape === shape) return;
  tree.dataset.shape = shape;
  fill(tree, relations.filter(({ kind }) => kind !== "sink").map(({ name, columns }) => h("details", { "data-name": name, open: open.has(name) },
    h("summary", { title: "Double-click to insert the name", ondblclick: () => insert(name) }, name),
    h("ul", {}, columns.map((column) => h("li", {}, column.name, h("span", {}, column.type)))))));
  if (relations.length === 0) fill(tree, h("p", { class: "note" }, "None yet."));
}
