// What a client may do to an object: a button, a question that shows the statement, and its answer.
import { get, send, ServerError } from "./api.js";
import { refresh } from "./catalog.js";
import { errorBox, fill, h, seconds, text } from "./dom.js";
import { includes } from "./objects.js";
import { cellsOf, headOf } from "./rows.js";
import { progressOf } from "./progress.js";
import { sqlBlock } from "./sql.js";

const LONGEST_SECONDS = 3600;
const PROGRESS_MILLISECONDS = 1000;

/** Run a statement that lists something; return its rows as objects. */
export async function listed(sql) {
  const { columns, rows } = await send("POST", "/v1/sql", { sql });
  return rows.map((row) => Object.fromEntries(columns.map(({ name }, index) => [name, row[index]])));
}

/**
 * Make a button that asks whether to run a statement, runs it, and shows its answer.
 *
 * `does` says in a sentence what it does, and `sql` is the statement, or a function of the values of `fields`: each
 * has a `name`, a `label`, and what its input has. `role` is that of the client where the statement acts, `where` its
 * name; a client without the role `needs` is told so. `run(values)` runs something else than the statement.
 * `done(answer)` follows.
 */
export function action(label, asked) {
  const { role, needs = "owner", where = "the database", primary = false, small = true, unable = null } = asked;
  const may = includes(role, needs) && unable === null;
  const reason = unable ?? `Role ${needs} in ${where} is needed.`;
  return h("button", {
    type: "button", class: ["action", small ? "small" : null, primary && may ? "primary" : null].filter(Boolean).join(" "),
    title: may ? null : reason, "aria-disabled": may ? null : "true",
    onclick: () => (may ? ask(label, asked) : tell(label, reason)),
  }, label);
}

/** Make a dialog that is gone when it is closed, and show it. */
function opened(...children) {
  const dialog = h("dialog", { class: "ask", "aria-labelledby": "ask-title" }, ...children);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

const heading = (label) => h("h2", { id: "ask-title" }, label);

function tell(label, reason) {
  const close = h("button", { type: "button", class: "action", onclick: () => dialog.close() }, "Close");
  const dialog = opened(heading(label), h("p", {}, reason), h("p", { class: "dim" }, "Roles are granted by an owner of the database: GRANT OWNER ON SCHEMA schema | DATABASE TO token."), h("div", { class: "answers" }, close));
}

function ask(label, { title = label, does, sql, fields = [], harms = false, run = null, done = () => {} }) {
  const values = () => Object.fromEntries(inputs.map((input) => [input.name, input.value.trim()]));
  const written = () => (typeof sql === "function" ? sql(values()) : sql);
  const shown = h("div", { class: "statement-to-run" });
  const draw = () => fill(shown, sqlBlock(written()));
  const inputs = fields.map(({ label: words, options, lines, ...attributes }) => {
    if (options) return h("select", { ...attributes, oninput: draw }, options.map((each) => h("option", {}, each)));
    return lines ? h("textarea", { rows: String(lines), spellcheck: "false", oninput: draw, ...attributes, ".value": attributes[".value"] ?? "" }) : h("input", { type: "text", autocomplete: "off", spellcheck: "false", oninput: draw, ...attributes });
  });
  const answer = h("div", { class: "answer", role: "status" });
  const confirm = h("button", { class: harms ? "action danger" : "action primary" }, label.replace(/…$/, ""));
  const cancel = h("button", { type: "button", class: "action", onclick: () => (abort === null ? dialog.close() : abort.abort()) }, "Cancel");
  let abort = null;
  const dialog = opened(h("form", {
    async onsubmit(event) {
      event.preventDefault();
      if (abort !== null) return;
      abort = new AbortController();
      confirm.disabled = true;
      for (const input of inputs) input.disabled = true;
      const over = follow(answer, written());
      try {
        const found = run === null ? await send("POST", "/v1/sql", { sql: written(), timeout: LONGEST_SECONDS }, { signal: abort.signal }) : await run(values(), abort.signal);
        fill(answer, answerOf(found));
        confirm.remove();
        text(cancel, "Close");
        refresh();
        done(found);
      } catch (error) {
        if (!(error instanceof ServerError) && error.name !== "AbortError") throw error;
        fill(answer, error instanceof ServerError ? errorBox(error.error) : h("p", { class: "dim" }, "Cancelled."));
        confirm.disabled = false;
        for (const input of inputs) input.disabled = false;
      } finally {
        over();
        abort = null;
      }
    },
  }, heading(title), h("p", {}, does),
  inputs.map((input, index) => h("label", {}, h("span", {}, fields[index].label), input)),
  shown, answer, h("div", { class: "answers" }, cancel, confirm)));
  // What runs is ended by its button, not by a key that was meant for something else.
  dialog.addEventListener("cancel", (event) => abort !== null && event.preventDefault());
  draw();
  if (fields.length === 0) confirm.focus();
  else if (fields[0].lines) inputs[0].setSelectionRange(0, 0);
}

/** Show for how long a statement has run, and what it says of its progress; return what ends that. */
function follow(place, sql) {
  const began = Date.now();
  const said = h("p", { class: "dim" }, "Running.");
  const made = h("div");
  fill(place, said, made);
  const timer = setInterval(async () => {
    text(said, `Running for ${seconds(Math.round((Date.now() - began) / 1000))}.`);
    const { statements } = await get("/v1/statements").catch(() => ({ statements: [] }));
    const mine = statements.findLast((each) => each.sql === sql);
    if (mine?.progress) fill(made, progressOf(mine.progress));
  }, PROGRESS_MILLISECONDS);
  return () => clearInterval(timer);
}

/** Return what a statement has answered: its message, or its rows. */
function answerOf(found) {
  if (found.kind !== "rows") return h("p", { class: "said" }, sentence(found.message || "done"));
  const { columns, rows } = found;
  if (rows.length === 1) {
    return h("dl", { class: "pairs" }, columns.flatMap(({ name }, index) => [h("dt", {}, name), h("dd", {}, String(rows[0][index] ?? ""))]));
  }
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Answer" }, h("table", { class: "data" }, headOf(columns), h("tbody", {}, rows.map((row) => h("tr", {}, cellsOf(columns, row))))));
}

const sentence = (words) => `${words.charAt(0).toUpperCase()}${words.slice(1)}${/[.!?]$/.test(words) ? "" : "."}`;
