// A page over two views that it follows and one that it asks.

import { cell, follow, line, lookUp } from "/console/application.js";

const count = new Intl.NumberFormat("en");
const place = (id) => document.getElementById(id);

function span(text, kind) {
  const made = document.createElement("span");
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

const bars = new Map();
follow("visits_by_url", ["url"], (rows, epoch) => {
  rows.sort((a, b) => b.visits - a.visits);
  const most = rows[0]?.visits ?? 1;
  for (const { url, visits } of rows) {
    if (!bars.has(url)) {
      const item = document.createElement("li");
      const bar = span("", "bar");
      const number = span("", "visits");
      item.append(span(url), bar, number);
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
  head.replaceChildren(cell("url", "col"), ...devices.map((device) => cell(device, "col")));
  place("devices").replaceChildren(
    ...urls.map((url) => line(url, ...devices.map((device) => count.format(found.get(`${url} ${device}`) ?? 0)))),
  );
});

async function show() {
  const { user, device } = Object.fromEntries(new FormData(place("lookup")));
  try {
    const { rows, epoch } = await lookUp("visits_by_user", { user, device }, { select: "url,visits", order: "-visits" });
    const visits = rows.map(([url, number]) => `${url} ${count.format(number)}`).join(", ");
    place("found").textContent = `${user}, ${device}: ${visits || "no visits"} (epoch ${epoch})`;
  } catch (error) {
    place("found").textContent = error.message;
  }
}
place("lookup").addEventListener("submit", (event) => {
  event.preventDefault();
  show();
});
show();
