// Statements: those that run, with their progress, and those that ended; the slow and the failed ones among them.
import { get, send } from "../api.js";
import { errorBox, fill, h, moment, seconds, toned } from "../dom.js";
import { listing } from "../listing.js";
import { progressOf } from "../progress.js";

const MILLISECONDS = 1000;
const SLOW_SECONDS = 1;
const SHOWN = 400;
const KINDS = [["all", "All", () => true], ["slow", "Slow", (each) => each.seconds >= SLOW_SECONDS], ["failed", "Failed", (each) => each.outcome !== "finished"]];

export function statements(main) {
  const running = listing("Running now", ["Statement", "Progress", ["For", { class: "num" }], [h("span", { class: "visually-hidden" }, "Cancel"), {}]]);
  const ended = listing("Ended", ["Began", "Statement", ["Took", { class: "num" }], "Outcome", "By"], { tall: true });
  const failed = h("div");
  let kind = "all";
  let last = null;
  const segments = h("div", { class: "segments", role: "group", "aria-label": "Which statements" }, KINDS.map(([key, label]) => h("button", {
    type: "button", ".value": key, "aria-pressed": String(key === kind),
    onclick() {
      kind = key;
      for (const each of segments.children) each.setAttribute("aria-pressed", String(each.value === kind));
      if (last !== null) drawEnded(ended, last, kind);
    },
  }, label)));
  fill(main,
    h("div", { class: "head" }, h("h1", {}, "Statements")),
    failed,
    h("section", { class: "panel" }, h("div", { class: "title" }, h("h2", {}, "Running now")), running.element),
    h("section", { class: "panel" }, h("div", { class: "title" }, h("h2", {}, "Ended"), segments), ended.element));

  running.wait();
  ended.wait();
  let closed = false;
  let timer = null;
  async function read() {
    try {
      const found = await get("/v1/statements");
      if (closed) return;
      fill(failed);
      drawRunning(running, found.statements, read);
      last = found.ended;
      drawEnded(ended, last, kind);
    } catch (error) {
      if (!closed) fill(failed, errorBox(error.error));
    }
    clearTimeout(timer);
    if (!closed) timer = setTimeout(read, MILLISECONDS);
  }
  read();
  return () => {
    closed = true;
    clearTimeout(timer);
  };
}

const shortened = (sql) => (sql.length > SHOWN ? `${sql.slice(0, SHOWN)}…` : sql);

function drawRunning(table, found, again) {
  const focused = document.activeElement?.dataset?.statement;
  table.set(found.map((statement) => h("tr", {},
    h("td", { class: "statement" }, shortened(statement.sql)),
    h("td", {}, progressOf(statement.progress)),
    h("td", { class: "num" }, seconds(Math.max(0, Date.now() / 1000 - statement.began_at))),
    h("td", {}, h("button", {
      type: "button", class: "action small", "data-statement": statement.id,
      async onclick(event) {
        event.target.disabled = true;
        await send("POST", `/v1/statements/${statement.id}/cancel`).catch(() => {});
        again();
      },
    }, "Cancel")))), "Nothing runs now.");
  if (focused !== undefined) table.body.querySelector(`[data-statement="${CSS.escape(focused)}"]`)?.focus();
}

function drawEnded(table, found, kind) {
  const [, , wanted] = KINDS.find(([key]) => key === kind);
  const chosen = found.filter(wanted);
  const shape = JSON.stringify([kind, chosen.map(({ id }) => id)]);
  if (table.body.dataset.shape === shape) return;
  table.body.dataset.shape = shape;
  const nothing = { all: "No statement has ended since the server was started.", slow: "No statement took a second or more.", failed: "No statement has failed." }[kind];
  table.set(chosen.map((statement) => h("tr", {},
    h("td", { class: "dim nowrap" }, moment(statement.began_at)),
    h("td", { class: "statement" }, h("a", { href: `#/workbench/sql/${encodeURIComponent(statement.sql)}`, title: "Open in the workbench" }, shortened(statement.sql))),
    h("td", { class: statement.seconds >= SLOW_SECONDS ? "num slow" : "num" }, seconds(statement.seconds)),
    h("td", { class: "outcome" }, toned(statement.outcome === "finished" ? "" : statement.outcome === "cancelled" ? "idle" : "bad", statement.outcome === "finished" || statement.outcome === "cancelled" ? statement.outcome : `${statement.outcome}: ${statement.error ?? ""}`)),
    h("td", { class: "dim" }, statement.by ?? ""))), nothing);
}
