// A page over two views that it follows and one that it asks: nothing but the browser's own EventSource and fetch.

const count = new Intl.NumberFormat("en");
const place = (id) => document.getElementById(id);

/** Follow a view: call `changed` with its rows, by key, after each whole epoch. */
function follow(view, key, changed) {
  const rows = new Map();
  const idOf = (row) => key.map((name) => row[name]).join(" ");
  let parts = [];
  const events = new EventSource(`/v1/subscribe?view=${view}`);
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
}

function cell(tag, text, scope) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (scope) made.scope = scope;
  return made;
}

const bars = new Map();
follow("visits_by_url", ["url"], (rows, epoch) => {
  rows.sort((a, b) => b.visits - a.visits);
  const most = rows[0]?.visits ?? 1;
  for (const { url, visits } of rows) {
    if (!bars.has(url)) {
      const item = document.createElement("li");
      const bar = document.createElement("span");
      bar.className = "bar";
      const number = cell("span", "");
      number.className = "visits";
      item.append(cell("span", url), bar, number);
      bars.set(url, { item, bar, number });
    }
    const { bar, number } = bars.get(url);
    bar.style.width = `${(100 * visits) / most}%`;
    number.textContent = count.format(visits);
  }
  const order = rows.map(({ url }) => bars.get(url).item);
  if (order.some((item, index) => place("urls").children[index] !== item)) place("urls").replaceChildren(...order);
  const total = rows.reduce((sum, { visits }) => sum + visits, 0);
  place("total").textContent = `${count.format(total)} visits, most of ${rows[0]?.url ?? "nothing"}; epoch ${epoch}`;
});

follow("visits_by_url_device", ["url", "device"], (rows) => {
  const devices = [...new Set(rows.map(({ device }) => device))].sort();
  const urls = [...new Set(rows.map(({ url }) => url))].sort();
  const found = new Map(rows.map((row) => [`${row.url} ${row.device}`, row.visits]));
  const head = document.querySelector("thead tr");
  head.replaceChildren(cell("th", "url", "col"), ...devices.map((device) => cell("th", device, "col")));
  place("devices").replaceChildren(...urls.map((url) => {
    const line = document.createElement("tr");
    line.append(cell("th", url, "row"), ...devices.map((device) => cell("td", count.format(found.get(`${url} ${device}`) ?? 0))));
    return line;
  }));
});

async function lookUp() {
  const { user, device } = Object.fromEntries(new FormData(place("lookup")));
  const query = new URLSearchParams([["where", `user=${user}`], ["where", `device=${device}`], ["select", "url,visits"], ["order", "-visits"]]);
  const answer = await fetch(`/v1/views/visits_by_user?${query}`);
  const { rows, epoch, error } = await answer.json();
  place("found").textContent = error
    ? error.primary
    : `${user}, ${device}: ${rows.map(([url, visits]) => `${url} ${count.format(visits)}`).join(", ") || "no visits"} (epoch ${epoch})`;
}
place("lookup").addEventListener("submit", (event) => {
  event.preventDefault();
  lookUp();
});
lookUp();
