// For the pages of applications: views that they follow, rows that they look up, statements that they run.

/** Follow a view: call `changed` with its rows and the epoch after each whole epoch, so that a page never shows a part of one.
 *
 *  `key` are the columns that identify a row. Returns a function that ends it. */
export function follow(view, key, changed) {
  const rows = new Map();
  const idOf = (row) => JSON.stringify(key.map((name) => row[name]));
  let parts = [];
  const events = new EventSource(`/v1/subscribe?${new URLSearchParams({ view })}`);
  const take = (apply) => (event) => {
    const data = JSON.parse(event.data);
    if (data.part === 0) parts = [];
    parts.push(data);
    if (!data.last) return;
    parts.forEach(apply);
    changed([...rows.values()], data.epoch);
  };
  events.addEventListener("snapshot", take(({ part, rows: found }) => {
    if (part === 0) rows.clear();
    for (const row of found) rows.set(idOf(row), row);
  }));
  events.addEventListener("changes", take(({ changes }) => {
    for (const { row, weight } of changes) if (weight < 0) rows.delete(idOf(row));
    for (const { row, weight } of changes) if (weight > 0) rows.set(idOf(row), row);
  }));
  return () => events.close();
}

/** Run a statement; return its answer, with `columns`, `rows`, `epoch` and `message`. Throws an Error in its words. */
export async function ask(sql, parameters = []) {
  return answerOf(await fetch("/v1/sql", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ sql, parameters }),
  }));
}

/** Look up the rows of a view whose columns have the values of `where`, with further options of /v1/views. */
export async function lookUp(view, where, options = {}) {
  const query = new URLSearchParams([...Object.entries(where).map(([name, value]) => ["where", `${name}=${value}`]), ...Object.entries(options)]);
  return answerOf(await fetch(`/v1/views/${encodeURIComponent(view)}?${query}`));
}

async function answerOf(response) {
  const found = await response.json();
  if (found.error) throw new Error(found.error.detail ?? found.error.primary);
  return found;
}

/** A cell of a table; a `scope` makes it the head of a row ("row") or a column ("col"). */
export function cell(text, scope) {
  const made = document.createElement(scope ? "th" : "td");
  made.textContent = text ?? "";
  if (scope) made.scope = scope;
  return made;
}

/** A row of a table, whose first cell is its head. */
export function line(first, ...rest) {
  const made = document.createElement("tr");
  made.append(cell(first, "row"), ...rest.map((text) => cell(text)));
  return made;
}
