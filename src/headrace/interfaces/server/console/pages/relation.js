// The page of one relation: its rows and changes as they happen, its circuit, how it is defined.
import { get, listen, ServerError } from "../api.js";
import { bytes, compact, count, counted, errorBox, fill, h, linkTo, loading, moment as timeOf, none, percent, seconds, shortKind, text, toned } from "../dom.js";
import { catalog, watchCatalog } from "../catalog.js";
import { spanControl, tile } from "../charts.js";
import { circuitGraph } from "../circuit.js";
import { followFigures } from "../figures.js";
import { action } from "../actions.js";
import { currency, notesOf, problemsOf, toneOf, unacknowledged } from "../problems.js";
import { cellsOf, headOf, LiveRows, rowTable } from "../rows.js";
import { quoted, sqlBlock } from "../sql.js";
import { now, watchStatus } from "../status.js";
import { lineageTab } from "./lineage.js";
import { errorText, problemsTab } from "./problems.js";
import { rejectedTab } from "./rejected.js";

const MOST_FOLLOWED = 2000;
const SAMPLE = 100;
const MOST_CHANGES = 500;
const DRAW_MILLISECONDS = 250;
const REFRESH_MILLISECONDS = 4000;
const AGAIN_MILLISECONDS = 1000;
const RECENT = 100;
const MEANINGS = { "+I": "added", "-D": "removed", "-U": "before", "+U": "after" };

/** Show the page of a relation, and a tab of it; `choose` is told the path of the page that lists its kind. */
export function relation(main, name, tab, choose) {
  const ends = [];
  let closed = false;
  const said = h("div");
  fill(said, loading());
  fill(main, h("div", { class: "head" }, h("h1", {}, name)), said);
  let again = null;
  const read = () => get(`/v1/catalog/${encodeURIComponent(name)}`).then(
    (found) => {
      if (closed) return;
      choose(found.kind === "stream" || found.kind === "table" ? "sources" : found.kind === "sink" ? "sinks" : "views");
      show(main, found, tab, ends);
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

function show(main, first, tab, ends) {
  const { name, kind } = first;
  let current = first;
  let others = { relations: [], costs: [] };
  const status = h("span", {});
  const acts = h("div", { class: "buttons" });
  const facts = h("dl", { class: "facts" });
  const summary = h("section", { class: "panel" }, facts);
  const charts = chartsOf(first, ends);
  const definition = { key: "definition", title: "Definition", show: definitionTab };
  const rows = [{ key: "rows", title: "Rows", show: rowsTab }, { key: "changes", title: "Changes", show: changesTab }];
  const sample = { key: "sample", title: "Sample", show: sampleTab };
  const problems = { key: "problems", title: "Problems", show: problemsTab, count: problemCount };
  const rejected = { key: "rejected", title: "Rejected", show: rejectedTab, count: ({ source }) => unacknowledged(source) };
  const lineage = { key: "lineage", title: "Lineage", show: lineageTab };
  const tabs = {
    "materialized view": [...rows, { key: "circuit", title: "Circuit", show: circuitTab }, problems, definition, lineage],
    table: [...rows, rejected, definition, lineage],
    stream: [sample, rejected, definition, lineage],
    "plain view": [definition, sample, lineage],
    sink: [problems, definition, lineage],
  }[kind];
  const panel = tabPanel(name, tabs, tab, () => current, ends);

  fill(main,
    h("div", { class: "head" }, h("h1", {}, name), h("span", { class: "kind" }, shortKind(kind)), status,
      h("div", { class: "tools" }, charts.length ? spanControl() : null, acts, kind === "sink" ? null : h("a", { class: "button", href: `#/workbench/${encodeURIComponent(name)}` }, "Query"))),
    summary,
    charts.length ? h("div", { class: "tiles" }, charts) : null,
    panel.element);

  let said = null;
  const state = () => {
    const [pending, behind] = now.moment?.views[name] ?? [null, 0];
    const tone = toneOf(current, behind);
    const words = kind === "materialized view" && current.state === "running" ? currency(pending ?? 0, behind) : current.state;
    if (said === `${tone} ${words}`) return;
    said = `${tone} ${words}`;
    fill(status, toned(tone, words));
  };
  let offered = null;
  /** Offer what can be done now; buttons stay the elements that they are while that is the same. */
  const offer = () => {
    const asked = JSON.stringify([current.state, current.role, catalog()?.client, current.freshness?.dirty_slices, current.freshness?.refresh]);
    if (asked === offered) return;
    offered = asked;
    fill(acts, actionsOf(current, catalog()?.client ?? null));
  };
  const draw = () => {
    state();
    offer();
    panel.count();
    const known = factsOf(current, others);
    summary.hidden = known.length === 0;
    update(facts, known.map(([label, value, tone, meaning]) => h("div", { class: tone ?? null, title: meaning ?? null }, h("dt", {}, label), h("dd", {}, value))));
  };
  draw();
  ends.push(watchStatus(state));
  ends.push(watchCatalog((found) => {
    others = found;
    draw();
  }));
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

/** Return the buttons for what can be done to a relation in its state, `client` being who asks. */
function actionsOf({ name, kind, state, role, freshness, source }, client) {
  const where = `the schema of ${name}`;
  const quoted_ = quoted(name);
  const found = [];
  if (kind === "materialized view") {
    if (freshness !== null && freshness.refresh !== "continuous") found.push(action("Refresh…", { small: false, role, needs: "writer", where, title: `Refresh ${name}`, sql: `REFRESH MATERIALIZED VIEW ${quoted_}`, does: "Its rows are brought up to date now, with those of the views that it reads." }));
    if (state === "stopped" || freshness?.dirty_slices) found.push(action("Repair…", { small: false, primary: true, role: client?.role ?? null, title: `Repair ${name}`, sql: `REPAIR ${quoted_}`, does: "What is dirty or has stopped is computed again from history, in a commit of its own. It goes on from there if the cause is gone." }));
    else if (state === "running") found.push(action("Verify…", { small: false, role, needs: "reader", where, title: `Verify ${name}`, sql: `VERIFY ${quoted_}`, does: "Its rows are compared with its query, run by Spark over the whole history. Nothing is changed." }));
  }
  if (kind === "sink") {
    const halted = state === "paused" || state === "stopped";
    found.push(halted ? action("Resume…", { small: false, primary: true, role, where, title: `Resume ${name}`, sql: `RESUME SINK ${quoted_}`, does: "It goes on after the last epoch that its target has; changes that have waited are written first." })
      : action("Pause…", { small: false, role, where, title: `Pause ${name}`, sql: `PAUSE SINK ${quoted_}`, does: "It writes nothing until it is resumed. Changes wait, and are not lost." }));
  }
  if (source?.connector && state === "stopped") found.push(action("Resume…", { small: false, primary: true, role: client?.role ?? null, title: `Resume ${name}`, sql: `RESUME SOURCE ${quoted_}`, does: "It goes on reading after the last row that was taken." }));
  return found;
}

/** Show facts; a link whose text alone has changed stays the element that it is, with the focus. */
function update(facts, found) {
  while (facts.children.length > found.length) facts.lastChild.remove();
  found.forEach((fresh, index) => {
    const old = facts.children[index];
    if (old === undefined) return facts.append(fresh);
    if (old.isEqualNode(fresh)) return undefined;
    const [before, after] = [old, fresh].map((each) => each.querySelector("dd > a:only-child"));
    if (old.className === fresh.className && before !== null && before.href === after?.href) return text(before, after.textContent);
    return old.replaceWith(fresh);
  });
}

/** Return what is shown of a relation beside its rows, from the catalog's `relations` and `costs`: a label, a value, and maybe a tone and a meaning. */
function factsOf(relation, { relations, costs }) {
  const { name, stored, freshness, source, delivery } = relation;
  const found = [];
  if (relation.key.length) found.push(["Key", relation.key.join(", ")]);
  if (stored) {
    found.push(stored.rows === null ? ["Entries", count(stored.entries), null, "Entries that sum to the rows; some cancel out"] : ["Rows", count(stored.rows)]);
    found.push(["Stored", bytes(stored.bytes), null, `${counted(stored.arrangements, "sorted collection")}: the rows, and what operators keep`]);
  }
  const cost = costs.find((each) => each.name === name && !each.candidate);
  if (cost) found.push(["Cost", `${percent(cost.share)} of all views`, null, `${seconds(cost.seconds)} of its operators' work since the server was started`]);
  const problem = (label, value, tab) => found.push([label, h("a", { href: linkTo(name, tab) }, value), "warn"]);
  if (freshness) {
    if (freshness.quarantined) problem("In quarantine", count(freshness.quarantined), "problems");
    if (freshness.dirty_slices) problem("Dirty slices", `${count(freshness.dirty_slices)} since ${timeOf(freshness.dirty_since)}`, "problems");
    else if (freshness.dirty_since !== null) found.push(["Dirty below since", timeOf(freshness.dirty_since), "warn"]);
    if (freshness.waits_for) found.push(["Waits for", freshness.waits_for, null, "Epochs of other views are made meanwhile"]);
    if (freshness.next_refresh !== null) found.push(["Next refresh", timeOf(freshness.next_refresh)]);
    if (freshness.watermark !== null) found.push(["Watermark", timeOf(freshness.watermark), null, "Events before this time are not expected any more"]);
    for (const each of freshness.inputs) {
      const [done, end] = [each.position, each.end];
      found.push([`Source ${each.relation}`, h("a", { href: linkTo(each.relation) }, done === end ? `all ${counted(end, "change")} read` : `${count(end - done)} of ${counted(end, "change")} to read`)]);
    }
  }
  if (source) {
    found.push(["Changes", count(source.end), null, "Insertions, updates and deletions that have arrived"]);
    if (source.connector) found.push(["Connector", source.connector]);
    if (source.behind !== null) found.push(["To read", count(source.behind), null, "Rows that the external system has and that have not been read yet"]);
    if (unacknowledged(source)) problem("Rejected", counted(unacknowledged(source), "row"), "rejected");
    else if (source.rejected) found.push(["Rejected", h("a", { href: linkTo(name, "rejected") }, `${counted(source.rejected, "row")}, acknowledged`)]);
    const notes = notesOf(source);
    if (notes.length) found.push(["Late, duplicates", notes.join(", "), null, "Rows that came after their time had passed, and rows whose id was known"]);
    if (source.watermark !== null) found.push(["Watermark", `${timeOf(source.watermark)}${source.delay ? `, ${seconds(source.delay)} behind the newest event` : ""}`, null, "Events before this time are not expected any more"]);
    if (source.error) found.push(["Error", errorText(source.error), "bad"]);
  }
  if (delivery) {
    found.push(["Writes to", delivery.target], ["Guarantee", delivery.guarantee],
      ["Waiting", delivery.rows_behind ? `${counted(delivery.rows_behind, "row")}, ${seconds(delivery.seconds_behind)}` : "nothing", null, `Delivered up to epoch ${delivery.epoch === null ? none : count(delivery.epoch)}`]);
    if (unacknowledged(delivery)) problem("Refused", counted(unacknowledged(delivery), "row"), "problems");
    if (delivery.error) found.push(["Error", errorText(delivery.error), "bad"]);
  }
  const read = new Set((freshness?.inputs ?? []).map((each) => each.relation));
  const links = (label, names) => {
    if (names.length) found.push([label, names.map((each, index) => [index ? ", " : "", h("a", { href: linkTo(each) }, each)]).flat()]);
  };
  links("Reads", relation.inputs.filter((each) => !read.has(each)));
  links("Read by", relations.filter(({ inputs }) => inputs.includes(name)).map((each) => each.name));
  links("Written by", relations.filter(({ kind, target }) => kind === "sink" && target === name).map((each) => each.name));
  return found;
}

const problemCount = (relation) => (relation.freshness?.quarantined ?? 0) + (relation.freshness?.dirty_slices ?? 0) + unacknowledged(relation.delivery)
  || problemsOf(relation).length;

/** Charts of a relation's own figures: freshness of a view, rows of a stream or table. */
function chartsOf(relation, ends) {
  const tiles = relation.kind === "materialized view"
    ? [["seconds", tile("Freshness", { format: seconds, time: true, unit: "behind", tone: "--warn", least: 1, present: (value) => (value === 0 ? "up to date" : null), meaning: "How long the oldest change has waited that this view does not show" })],
      ["pending", tile("Waiting", { format: compact, unit: "changes", tone: "--warn", least: 10, meaning: "Changes of its inputs that this view does not show yet" })]]
    : relation.kind === "stream" || relation.kind === "table"
      ? [["rows", tile("Changes in", { format: compact, unit: "changes/s", least: 5 })]] : [];
  if (tiles.length === 0) return [];
  ends.push(followFigures(relation.name, (figures, step) => {
    for (const [name, chart] of tiles) chart.set(figures.at, figures[name], step);
  }));
  ends.push(() => tiles.forEach(([, chart]) => chart.close()));
  return tiles.map(([, chart]) => chart.element);
}

/** Tabs by the pattern of ARIA: arrows move between them, one panel is shown at a time, and the address has its key. */
function tabPanel(name, tabs, wanted, current, ends) {
  const panel = h("div", { role: "tabpanel", id: "tabpanel" });
  let leave = () => {};
  const buttons = tabs.map(({ title }, index) => h("button", {
    type: "button", role: "tab", id: `tab-${index}`, "aria-controls": "tabpanel",
    onclick: () => pick(index),
    onkeydown(event) {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step === undefined) return;
      const next = (index + step + tabs.length) % tabs.length;
      pick(next);
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
  function pick(chosen) {
    choose(chosen);
    history.replaceState(null, "", linkTo(name, tabs[chosen].key));
  }
  choose(Math.max(0, tabs.findIndex(({ key }) => key === wanted)));
  ends.push(() => leave());
  return {
    element: h("section", { class: "panel" }, h("div", { class: "tabs", role: "tablist", "aria-label": "What is shown" }, buttons), panel),
    /** Write how many problems there are beside the titles of the tabs that show them. */
    count() {
      tabs.forEach((tab, index) => {
        const found = tab.count?.(current()) ?? 0;
        const words = found ? `${tab.title} ${count(found)}` : tab.title;
        text(buttons[index], words);
        buttons[index].classList.toggle("warns", found > 0);
      });
    },
  };
}

// -- rows ------------------------------------------------------------------------------------

function rowsTab(place, relation) {
  const live = new LiveRows(relation.key);
  const table = rowTable();
  const said = h("span", {}, "reading");
  const connection = h("span", {});
  const search = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter rows", oninput: () => draw() });
  const waits = loading();
  fill(place, h("div", { class: "bar" }, said, connection, h("span", { class: "spacer" }), search), table.element, waits);
  let timer = null;
  let epoch = null;
  let whole = true;

  function draw() {
    clearTimeout(timer);
    timer = null;
    waits.remove();
    const { total, drawn } = table.draw(live, search.value.trim().toLowerCase());
    const some = whole ? counted(total, "row") : `a sample of ${counted(total, "row")}`;
    text(said, `${some}${drawn < total ? `, the first ${count(drawn)} shown` : ""}, kept up to date`);
    said.title = `As of epoch ${epoch ?? none}`;
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
  const { columns, key } = relation;
  const head = headOf(columns, key);
  head.rows[0].prepend(h("th", { scope: "col" }, "Time"), h("th", { scope: "col", title: "+I added, -D removed, -U the row before an update, +U the row after it" }, "Change"));
  head.rows[0].append(h("th", { scope: "col", class: "num", title: "Views change by epochs: all changes of one are shown at once" }, "Epoch"));
  const said = h("span", {}, "reading");
  let paused = false;
  let waiting = [];
  let seen = 0;
  let before = "";
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

  const line = ({ epoch, op, weight, row }, at, fresh) => h("tr", { class: fresh ? "fresh" : null },
    h("td", { class: "dim" }, timeOf(at)),
    h("td", { class: `op ${op.startsWith("+") ? "plus" : "minus"}`, title: MEANINGS[op] }, op, h("span", { class: "dim" }, ` ${MEANINGS[op]}${Math.abs(weight ?? 1) > 1 ? ` ×${Math.abs(weight)}` : ""}`)),
    cellsOf(columns, columns.map(({ name }) => row[name]), key),
    h("td", { class: "num dim" }, count(epoch)));
  const add = (rows) => {
    body.prepend(...rows.reverse());
    while (body.rows.length > MOST_CHANGES) body.lastChild.remove();
  };
  function draw() {
    if (paused || waiting.length === 0) return;
    add(waiting.map(({ change, at }) => line(change, at, true)));
    waiting = [];
    tell();
  }
  const tell = () => text(said, seen === 0 ? before : `${before}, ${counted(seen, "change")} since`);

  const timer = setInterval(draw, DRAW_MILLISECONDS);
  let stream = null;
  let stopped = false;
  async function begin() {
    try {
      const found = await get(`/v1/views/${encodeURIComponent(relation.name)}/changes`, { limit: RECENT });
      if (stopped) return;
      const earlier = found.epochs.flatMap(({ committed_at: at, changes }) => changes.map((change) => line(change, at, false)));
      fill(body);
      add(earlier);
      before = earlier.length === 0 ? "no change is kept from before" : found.complete ? `all ${counted(earlier.length, "change")} that are kept` : `the last ${counted(earlier.length, "change")}`;
      tell();
      stream = listen("/v1/subscribe", { view: relation.name, after: found.token }, {
        error: (error) => (error.code === "conflict" && !stopped ? setTimeout(begin, AGAIN_MILLISECONDS) : place.prepend(errorBox({ ...error, span: null }))),
        event(kind, data) {
          if (kind !== "changes") return;
          const at = now.moment?.epoch === data.epoch ? now.moment.committed_at : Date.now() / 1000;
          seen += data.changes.length;
          waiting.push(...data.changes.map((change) => ({ change, at })));
          if (waiting.length > MOST_CHANGES) waiting = waiting.slice(-MOST_CHANGES);
        },
      });
    } catch (error) {
      if (!stopped) fill(place, errorBox({ ...error.error, span: null }));
    }
  }
  begin();
  return () => {
    stopped = true;
    clearInterval(timer);
    stream?.stop();
  };
}

// -- a sample ---------------------------------------------------------------------------------

/** Some rows of what is not kept as rows: a query reads them, once for each time it is asked for. */
function sampleTab(place, relation) {
  const said = h("span", { role: "status" });
  const table = h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Sample" }, loading());
  const again = h("button", { type: "button", class: "action", onclick: () => read() }, "Read again");
  const abort = new AbortController();
  async function read() {
    again.disabled = true;
    text(said, "reading");
    try {
      const { columns, rows, epoch } = await get(`/v1/views/${encodeURIComponent(relation.name)}`, { limit: SAMPLE }, { signal: abort.signal });
      fill(table, h("table", { class: "data" }, headOf(columns), h("tbody", {}, rows.map((values) => h("tr", {}, cellsOf(columns, values))))));
      text(said, `${counted(rows.length, "row")} of it`);
      said.title = `As of epoch ${epoch}`;
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
  const graph = circuitGraph();
  const draw = (found) => {
    if (found.circuit === null) return fill(place, h("p", { class: "note" }, "The query of this view cannot be planned now."));
    if (!graph.element.isConnected) fill(place, graph.element);
    return graph.set(found.circuit);
  };
  draw(relation);
  const timer = setInterval(() => get(`/v1/catalog/${encodeURIComponent(relation.name)}`).then(draw, () => {}), REFRESH_MILLISECONDS);
  return () => {
    clearInterval(timer);
    graph.close();
  };
}

function definitionTab(place, relation) {
  const code = h("div");
  const draw = () => relation.sql && fill(code, sqlBlock(relation.sql));
  draw();
  fill(place, code,
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "Column"), h("th", {}, "Type"), h("th", {}, "Nullable"), h("th", {}, "Key"))),
      h("tbody", {}, relation.columns.map((column) => h("tr", {},
        h("td", {}, column.name), h("td", { class: "mono" }, column.type), h("td", { class: "dim" }, column.nullable ? "yes" : "no"),
        h("td", { class: "dim" }, relation.key.includes(column.name) ? "key" : "")))))));
  // The catalog has the keywords, which get a colour: a page that was opened directly waits for it.
  let coloured = catalog() !== null;
  return watchCatalog(() => {
    if (!coloured) draw();
    coloured = true;
  });
}
