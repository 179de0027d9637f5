// The page of one relation: its rows and changes as they happen, its circuit, how it is defined.
import { get, listen, ServerError } from "../api.js";
import { bytes, compact, count, errorBox, fill, h, linkTo, moment as timeOf, none, seconds, shortKind, stateOf, text } from "../dom.js";
import { tile } from "../charts.js";
import { cellsOf, headOf, LiveRows, rowTable } from "../rows.js";
import { sqlBlock } from "../sql.js";
import { watchStatus } from "../status.js";

const MOST_FOLLOWED = 2000;
const SAMPLE = 100;
const MOST_CHANGES = 500;
const DRAW_MILLISECONDS = 250;
const REFRESH_MILLISECONDS = 4000;
const AGAIN_MILLISECONDS = 1000;

/** Show the page of a relation; `choose` is told the path of the page that lists its kind. */
export function relation(main, name, choose) {
  const ends = [];
  let closed = false;
  const said = h("div");
  fill(main, h("div", { class: "head" }, h("h1", {}, name)), said);
  let again = null;
  const read = () => get(`/v1/catalog/${encodeURIComponent(name)}`).then(
    (found) => {
      if (closed) return;
      choose(found.kind === "stream" || found.kind === "table" ? "sources" : found.kind === "sink" ? "jobs" : "views");
      show(main, found, ends);
    },
    ({ error }) => {
      if (closed) return;
      fill(said, errorBox(error));
      if (error.code === "unavailable") again = setTimeout(read, REFRESH_MILLISECONDS);
    },
  );
  read();
  return () => {
    closed = true;
    clearTimeout(again);
    for (const end of ends) end();
  };
}

function show(main, first, ends) {
  const { name, kind } = first;
  let current = first;
  const status = h("span", {}, stateOf(first.state));
  const facts = h("dl", { class: "facts" });
  const summary = h("section", { class: "panel" }, facts);
  const charts = chartsOf(first, ends);
  const definition = { title: "Definition", show: definitionTab };
  const rows = [{ title: "Rows", show: rowsTab }, { title: "Changes", show: changesTab }];
  const tabs = {
    "materialized view": [...rows, { title: "Circuit", show: circuitTab }, definition],
    table: [...rows, definition],
    stream: [definition, { title: "Sample", show: sampleTab }],
    "plain view": [definition, { title: "Sample", show: sampleTab }],
    sink: [definition],
  }[kind];

  fill(main,
    h("div", { class: "head" }, h("h1", {}, name), h("span", { class: "kind" }, shortKind(kind)), status, h("span", { class: "spacer" }),
      kind === "sink" ? null : h("a", { class: "button", href: `#/workbench/${encodeURIComponent(name)}` }, "Query")),
    summary,
    charts.length ? h("div", { class: "tiles" }, charts) : null,
    tabPanel(tabs, () => current, ends));

  const draw = () => {
    fill(status, stateOf(current.state));
    const known = factsOf(current);
    summary.hidden = known.length === 0;
    fill(facts, known.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value))));
  };
  draw();
  const timer = setInterval(async () => {
    if (document.hidden) return;
    try {
      current = await get(`/v1/catalog/${encodeURIComponent(name)}`);
      draw();
    } catch (error) {
      if (error instanceof ServerError && error.status === 404) {
        clearInterval(timer);
        main.prepend(errorBox(error.error));
      }
    }
  }, REFRESH_MILLISECONDS);
  ends.push(() => clearInterval(timer));
}

function factsOf(relation) {
  const { stored, freshness, source, delivery } = relation;
  const found = [];
  if (relation.key.length) found.push(["Key", relation.key.join(", ")]);
  if (stored) found.push(["Rows in state", count(stored.rows)], ["Bytes", bytes(stored.bytes)], ["Arrangements", count(stored.arrangements)]);
  if (freshness) {
    if (freshness.watermark !== null) found.push(["Watermark", timeOf(freshness.watermark)]);
    if (freshness.dirty_since !== null) found.push(["Dirty since", timeOf(freshness.dirty_since)]);
    if (freshness.dirty_slices) found.push(["Dirty slices", count(freshness.dirty_slices)]);
    for (const each of freshness.inputs) found.push([each.relation, `${count(each.position)} of ${count(each.end)} read`]);
  }
  if (source) {
    found.push(["Changes in the log", count(source.end)]);
    if (source.connector) found.push(["Connector", source.connector]);
    if (source.behind !== null) found.push(["Source lag", count(source.behind)]);
    if (source.rejected) found.push(["Rejected", h("a", { href: `#/sources/${encodeURIComponent(relation.name)}` }, count(source.rejected))]);
    if (source.duplicates !== null) found.push(["Duplicates", count(source.duplicates)]);
    if (source.late !== null) found.push(["Late", count(source.late)]);
    if (source.watermark !== null) found.push(["Watermark", timeOf(source.watermark)]);
    if (source.error) found.push(["Error", source.error]);
  }
  if (delivery) {
    found.push(["Writes to", delivery.target], ["Guarantee", delivery.guarantee], ["Delivered epoch", delivery.epoch === null ? none : count(delivery.epoch)], ["Epochs behind", count(delivery.epochs_behind)]);
    if (delivery.error) found.push(["Error", delivery.error]);
  }
  const read = new Set((freshness?.inputs ?? []).map((each) => each.relation));
  if (relation.inputs.some((name) => !read.has(name))) found.push(["Reads", relation.inputs.map((each, index) => [index ? ", " : "", h("a", { href: linkTo(each) }, each)]).flat()]);
  return found;
}

/** Charts of a relation's own figures: freshness of a view, rows of a stream or table. */
function chartsOf(relation, ends) {
  const at = [];
  const series = { pending: [], seconds: [], rows: [] };
  const push = (time, pending, behind, rows) => {
    at.push(time);
    series.pending.push(pending);
    series.seconds.push(behind);
    series.rows.push(rows);
    if (at.length > 900) [at, ...Object.values(series)].forEach((each) => each.shift());
  };
  const tiles = relation.kind === "materialized view"
    ? [["seconds", tile("Freshness", { format: seconds, unit: "behind", tone: "--warn", least: 1 })],
      ["pending", tile("Lag", { format: compact, unit: "changes", tone: "--warn", least: 10 })]]
    : relation.kind === "stream" || relation.kind === "table"
      ? [["rows", tile("Changes in", { format: compact, unit: "/s", least: 5 })]] : [];
  if (tiles.length === 0) return [];
  const draw = () => {
    for (const [name, chart] of tiles) chart.set(at, series[name]);
  };
  let before = null;
  /** Rows per second since the moment before, by the ends of the log. */
  const rateAt = (time, end) => {
    const rate = before !== null && end !== null && before.end !== null && time > before.time ? Math.max(0, end - before.end) / (time - before.time) : null;
    before = { time, end };
    return rate;
  };
  get("/v1/history", { relation: relation.name }).then(({ at: times, relation: own }) => {
    at.length = 0;
    for (const each of Object.values(series)) each.length = 0;
    before = null;
    times.forEach((time, index) => push(time, own.pending[index], own.seconds[index], rateAt(time, own.end[index])));
    draw();
  }, () => {});
  ends.push(watchStatus((moment) => {
    if (moment.at <= (at.at(-1) ?? 0)) return;
    const [pending, behind] = moment.views[relation.name] ?? [null, null];
    push(moment.at, pending, behind, rateAt(moment.at, moment.sources[relation.name] ?? null));
    draw();
  }));
  ends.push(() => tiles.forEach(([, chart]) => chart.close()));
  return tiles.map(([, chart]) => chart.element);
}

/** Tabs by the pattern of ARIA: arrows move between them, one panel is shown at a time. */
function tabPanel(tabs, current, ends) {
  const panel = h("div", { role: "tabpanel", id: "tabpanel" });
  let leave = () => {};
  const buttons = tabs.map(({ title }, index) => h("button", {
    type: "button", role: "tab", id: `tab-${index}`, "aria-controls": "tabpanel",
    onclick: () => choose(index),
    onkeydown(event) {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step === undefined) return;
      const next = (index + step + tabs.length) % tabs.length;
      choose(next);
      buttons[next].focus();
    },
  }, title));
  function choose(chosen) {
    leave();
    buttons.forEach((button, index) => {
      button.setAttribute("aria-selected", String(index === chosen));
      button.tabIndex = index === chosen ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", `tab-${chosen}`);
    fill(panel);
    leave = tabs[chosen].show(panel, current()) ?? (() => {});
  }
  choose(0);
  ends.push(() => leave());
  return h("section", { class: "panel" }, h("div", { class: "tabs", role: "tablist", "aria-label": "What is shown" }, buttons), panel);
}

// -- rows ------------------------------------------------------------------------------------

function rowsTab(place, relation) {
  const live = new LiveRows(relation.key);
  const table = rowTable();
  const said = h("span", {}, "reading");
  const connection = h("span", {});
  const search = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter rows", oninput: () => draw() });
  fill(place, h("div", { class: "bar" }, said, connection, h("span", { class: "spacer" }), search), table.element);
  let timer = null;
  let epoch = null;
  let whole = true;

  function draw() {
    clearTimeout(timer);
    timer = null;
    const { total, drawn } = table.draw(live, search.value.trim().toLowerCase());
    const some = whole ? `${count(total)} row${total === 1 ? "" : "s"}` : `a sample of ${count(total)} rows`;
    text(said, `${some}${drawn < total ? `, the first ${count(drawn)} shown` : ""} · epoch ${epoch ?? none}`);
  }
  const soon = () => {
    timer ??= setTimeout(draw, DRAW_MILLISECONDS);
  };
  const following = readThenFollow(relation.name, MOST_FOLLOWED + 1, {
    state: (state) => text(connection, state === "live" ? "" : `· ${state}`),
    error: (error) => fill(place, errorBox({ ...error, span: null })),
    rows(found) {
      live.columns = found.columns;
      live.rows.clear();
      for (const values of found.rows.slice(0, MOST_FOLLOWED)) {
        live.add(Object.fromEntries(found.columns.map(({ name }, index) => [name, values[index]])), 1);
      }
      whole = found.rows.length <= MOST_FOLLOWED;
      epoch = found.epoch;
      draw();
    },
    event(kind, data) {
      epoch = data.epoch;
      if (whole) live.take(kind, data);
      else if (kind === "changes") follow(live, data.changes);
      soon();
    },
  });
  return () => {
    clearTimeout(timer);
    following.stop();
  };
}

/** Change the rows of a sample: those that are in it, and no others. */
function follow(live, changes) {
  const held = new Set([...live.rows.values()].map(({ row }) => live.keyOf(row)));
  for (const { row, weight } of changes) if (held.has(live.keyOf(row))) live.add(row, weight);
}

/**
 * Read the rows of the last epoch at once, then follow what changes after it.
 *
 * If the epoch is gone by then, they are read again.
 */
function readThenFollow(name, limit, on) {
  let stream = null;
  let stopped = false;
  async function begin() {
    try {
      const found = await get(`/v1/views/${encodeURIComponent(name)}`, { limit });
      if (stopped) return;
      on.rows(found);
      stream = listen("/v1/subscribe", { view: name, after: found.token }, {
        ...on,
        error: (error) => (error.code === "conflict" && !stopped ? setTimeout(begin, AGAIN_MILLISECONDS) : on.error(error)),
      });
    } catch (error) {
      if (!stopped) on.error(error.error);
    }
  }
  begin();
  return {
    stop() {
      stopped = true;
      stream?.stop();
    },
  };
}

// -- changes ---------------------------------------------------------------------------------

function changesTab(place, relation) {
  const body = h("tbody");
  const columns = relation.columns;
  const head = headOf(columns, relation.key);
  head.rows[0].prepend(h("th", { scope: "col", class: "num" }, "Epoch"), h("th", { scope: "col" }, "Op"));
  const said = h("span", {}, "waiting for changes");
  let paused = false;
  let waiting = [];
  let seen = 0;
  const pause = h("button", {
    type: "button", class: "action", "aria-pressed": "false",
    onclick() {
      paused = !paused;
      pause.setAttribute("aria-pressed", String(paused));
      text(pause, paused ? "Continue" : "Pause");
      if (!paused) draw();
    },
  }, "Pause");
  fill(place, h("div", { class: "bar" }, said, h("span", { class: "spacer" }), pause),
    h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Changes" }, h("table", { class: "data" }, head, body)));

  function draw() {
    if (paused || waiting.length === 0) return;
    const rows = waiting.slice(-MOST_CHANGES).map(({ epoch, op, row }) => h("tr", { class: "fresh" },
      h("td", { class: "num dim" }, String(epoch)),
      h("td", { class: `op ${op.startsWith("+") ? "plus" : "minus"}` }, op),
      cellsOf(columns, columns.map(({ name }) => row[name]))));
    waiting = [];
    body.prepend(...rows.reverse());
    while (body.rows.length > MOST_CHANGES) body.lastChild.remove();
    text(said, `${count(seen)} change${seen === 1 ? "" : "s"} since this page was opened`);
  }
  const timer = setInterval(draw, DRAW_MILLISECONDS);
  const following = readThenFollow(relation.name, 0, {
    rows() {},
    error: (error) => fill(place, errorBox(error)),
    event(kind, data) {
      if (kind !== "changes") return;
      seen += data.changes.length;
      waiting.push(...data.changes);
      if (waiting.length > MOST_CHANGES) waiting = waiting.slice(-MOST_CHANGES);
    },
  });
  return () => {
    clearInterval(timer);
    following.stop();
  };
}

// -- a sample ---------------------------------------------------------------------------------

/** Some rows of what is not kept as rows: a query reads them, once for each time it is asked for. */
function sampleTab(place, relation) {
  const said = h("span", { role: "status" });
  const table = h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Sample" });
  const again = h("button", { type: "button", class: "action", onclick: () => read() }, "Read again");
  const abort = new AbortController();
  async function read() {
    again.disabled = true;
    text(said, "reading");
    try {
      const { columns, rows, epoch } = await get(`/v1/views/${encodeURIComponent(relation.name)}`, { limit: SAMPLE }, { signal: abort.signal });
      fill(table, h("table", { class: "data" }, headOf(columns), h("tbody", {}, rows.map((values) => h("tr", {}, cellsOf(columns, values))))));
      text(said, `${count(rows.length)} of its rows · epoch ${epoch}`);
    } catch (error) {
      if (!abort.signal.aborted) fill(table, errorBox({ ...error.error, span: null }));
      text(said, "");
    }
    again.disabled = false;
  }
  fill(place, h("div", { class: "bar" }, said, h("span", { class: "spacer" }), again), table);
  read();
  return () => abort.abort();
}

// -- circuit and definition -------------------------------------------------------------------

function circuitTab(place, relation) {
  const list = h("ul", { class: "circuit" });
  const draw = (found) => {
    if (found.circuit === null) return fill(place, h("p", { class: "note" }, "The query of this view cannot be planned now."));
    return fill(list, found.circuit.map((node) => {
      const item = h("li", { "data-depth": node.depth },
        h("span", { class: "title" }, node.again ? `${node.title}: see above` : node.title),
        node.arrangements.map((each) => h("span", { class: "state" },
          h("span", {}, each.relation === null ? `stored by (${each.key})` : `rows of ${each.relation} by (${each.key})`),
          h("span", {}, `${count(each.rows)} rows`), h("span", {}, bytes(each.bytes)))),
        node.cost === null ? null : h("span", { class: "state" }, `per change: ${node.cost}`));
      item.style.paddingLeft = `${node.depth * 18}px`;
      return item;
    }));
  };
  fill(place, list);
  draw(relation);
  const timer = setInterval(() => get(`/v1/catalog/${encodeURIComponent(relation.name)}`).then(draw, () => {}), REFRESH_MILLISECONDS);
  return () => clearInterval(timer);
}

function definitionTab(place, relation) {
  fill(place,
    relation.sql ? sqlBlock(relation.sql) : null,
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "Column"), h("th", {}, "Type"), h("th", {}, "Null"), h("th", {}, "Key"))),
      h("tbody", {}, relation.columns.map((column) => h("tr", {},
        h("td", {}, column.name), h("td", { class: "mono" }, column.type), h("td", { class: "dim" }, column.nullable ? "yes" : "no"),
        h("td", { class: "dim" }, relation.key.includes(column.name) ? "key" : "")))))));
}
