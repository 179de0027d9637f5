// What runs: statements with their progress, and the sinks that are delivered to.
import { get, send } from "../api.js";
import { count, errorBox, fill, h, linkTo, none, seconds, stateOf } from "../dom.js";
import { watchCatalog } from "../catalog.js";

const MILLISECONDS = 1000;

export function jobs(main) {
  const running = h("tbody");
  const sinks = h("tbody");
  const failed = h("div");
  fill(main,
    h("div", { class: "head" }, h("h1", {}, "Jobs")),
    failed,
    h("section", { class: "panel" }, h("div", { class: "title" }, h("h2", {}, "Statements that run")),
      h("div", { class: "scroll" }, h("table", {},
        h("thead", {}, h("tr", {}, h("th", {}, "Statement"), h("th", {}, "Progress"), h("th", { class: "num" }, "Running for"), h("th", {}, h("span", { class: "visually-hidden" }, "Cancel")))),
        running))),
    h("section", { class: "panel" }, h("div", { class: "title" }, h("h2", {}, "Sinks")),
      h("div", { class: "scroll" }, h("table", {},
        h("thead", {}, h("tr", {}, h("th", {}, "Name"), h("th", {}, "State"), h("th", {}, "From"), h("th", {}, "To"), h("th", { class: "optional" }, "Guarantee"), h("th", { class: "num" }, "Epoch"), h("th", { class: "num" }, "Epochs behind"), h("th", { class: "num" }, "Rows behind"), h("th", { class: "num" }, "Behind for"), h("th", { class: "num" }, "Refused"))),
        sinks))));

  let closed = false;
  let timer = null;
  async function read() {
    try {
      const { statements } = await get("/v1/statements");
      if (closed) return;
      fill(failed);
      drawStatements(running, statements, read);
    } catch (error) {
      if (!closed) fill(failed, errorBox(error.error));
    }
    clearTimeout(timer);
    if (!closed) timer = setTimeout(read, MILLISECONDS);
  }
  read();
  const end = watchCatalog(({ relations }) => drawSinks(sinks, relations.filter(({ kind }) => kind === "sink")));
  return () => {
    closed = true;
    clearTimeout(timer);
    end();
  };
}

function drawStatements(body, statements, again) {
  const focused = document.activeElement?.dataset?.statement;
  fill(body, statements.map((statement) => h("tr", {},
    h("td", { class: "mono" }, statement.sql.length > 300 ? `${statement.sql.slice(0, 300)}…` : statement.sql),
    h("td", {}, progressOf(statement.progress)),
    h("td", { class: "num" }, seconds(Math.max(0, Date.now() / 1000 - statement.began_at))),
    h("td", {}, h("button", {
      type: "button", class: "action", "data-statement": statement.id,
      async onclick(event) {
        event.target.disabled = true;
        await send("POST", `/v1/statements/${statement.id}/cancel`).catch(() => {});
        again();
      },
    }, "Cancel")))));
  if (statements.length === 0) fill(body, h("tr", {}, h("td", { colspan: 4, class: "dim" }, "Nothing runs now.")));
  if (focused !== undefined) body.querySelector(`[data-statement="${CSS.escape(focused)}"]`)?.focus();
}

function progressOf(progress) {
  if (progress === null) return h("span", { class: "dim" }, none);
  const { what, done, total, unit, rejected } = progress;
  const said = `${what}: ${count(done)}${total === null ? "" : ` of ${count(total)}`} ${unit}${rejected ? `, ${count(rejected)} rejected` : ""}`;
  return [total ? h("progress", { max: total, value: done, "aria-label": said }) : null, h("div", {}, said)];
}

function drawSinks(body, sinks) {
  fill(body, sinks.map(({ name, state, delivery }) => [h("tr", {},
    h("td", {}, h("a", { href: linkTo(name) }, name)), h("td", {}, stateOf(state)),
    h("td", {}, delivery?.source ?? none), h("td", {}, delivery?.target ?? none), h("td", { class: "dim optional" }, delivery?.guarantee ?? none),
    h("td", { class: "num" }, count(delivery?.epoch)), h("td", { class: "num" }, count(delivery?.epochs_behind)),
    h("td", { class: "num" }, count(delivery?.rows_behind)), h("td", { class: "num" }, delivery?.seconds_behind ? seconds(delivery.seconds_behind) : none), h("td", { class: "num" }, count(delivery?.refused))),
  delivery?.rows_total ? h("tr", {}, h("td", { colspan: 10 },
    progressOf({ what: "Writing", done: delivery.rows_done, total: delivery.rows_total, unit: "rows" }))) : null,
  delivery?.error ? h("tr", {}, h("td", { colspan: 10 }, h("div", { class: "error" }, delivery.error))) : null]).flat());
  if (sinks.length === 0) fill(body, h("tr", {}, h("td", { colspan: 10, class: "dim" }, "No sinks. CREATE SINK, or INSERT INTO ... SELECT from a view, starts one.")));
}
