// Balances that the page follows, and what it asks once a second.

import { ask, cell, follow, line, lookUp } from "/console/application.js";

const place = (id) => document.getElementById(id);
const money = new Intl.NumberFormat("en", { minimumFractionDigits: 2 });
const START = Date.UTC(2026, 10, 1);
const DAYS = 10;

const idOf = (row) => `${row.segment} ${row.currency}`;

// After each whole epoch: the page never shows one segment of before a change and another of after it.
follow("segment_balance", ["segment", "currency"], (rows, epoch) => {
  const sorted = rows.sort((a, b) => (idOf(a) < idOf(b) ? -1 : 1));
  place("balances").replaceChildren(...sorted.map((row) => line(
    idOf(row), `version ${row.policy_version}`, row.merchants, ...[row.available, row.pending, row.reserve].map((sum) => money.format(sum)),
  )));
  place("epoch").textContent = `epoch ${epoch}`;
  const segments = [...new Set(sorted.map(({ segment }) => segment))];
  for (const list of [place("segment"), place("doubted")]) {
    if (list.options.length !== segments.length) list.replaceChildren(...segments.map((name) => new Option(name)));
  }
});

async function table(name, sql) {
  const { columns, rows: found } = await ask(sql);
  place(`${name}-names`).replaceChildren(...columns.map((column) => cell(column.name.replaceAll("_", " "), "col")));
  place(name).replaceChildren(...found.map(([first, ...rest]) => line(first, ...rest)));
}

async function look() {
  try {
    await table("dirty", "SELECT table_name, cause, condition, age_seconds, repair, state FROM information_schema.dirty");
    await table("freshness", "SELECT table_name, epoch, seconds_behind, watermark FROM information_schema.freshness");
  } catch (error) {
    place("epoch").textContent = error.message;
  }
  setTimeout(look, 1000);
}

const time = (days) => new Date(START + (DAYS - days) * 86_400_000).toISOString().slice(0, 19).replace("T", " ");

async function changed(event, act) {
  event.preventDefault();
  const begun = performance.now();
  try {
    const { message } = await act(Object.fromEntries(new FormData(event.target)));
    place("done").textContent = `${message}: ${((performance.now() - begun) / 1000).toFixed(1)} s`;
  } catch (error) {
    place("done").textContent = error.message;
  }
}

const quoted = (text) => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;

/** The statement that the form stands for: another version of a segment's policy. */
function version() {
  const { segment, rate, days } = Object.fromEntries(new FormData(place("change")));
  return `INSERT INTO reserve_policy SELECT ${quoted(segment)}, TIMESTAMP ${quoted(time(days))}, CAST(${quoted(rate)} AS DECIMAL(5,4)), max(version) + 1 FROM reserve_policy`;
}

place("change").addEventListener("submit", (event) => changed(event, () => ask(version())));
place("try").addEventListener("click", async () => {
  try {
    await table("explained", `EXPLAIN CHANGE ${version()}`);
  } catch (error) {
    place("done").textContent = error.message;
  }
});
place("doubt").addEventListener("submit", (event) => changed(event, ({ segment, reason }) => {
  return ask(`INVALIDATE VIEW merchant_balance WHERE segment = ${quoted(segment)} SINCE '${time(3)}' BECAUSE ${quoted(reason)}`);
}));

place("lookup").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { merchant, currency } = Object.fromEntries(new FormData(event.target));
  try {
    const { columns, rows, epoch } = await lookUp("merchant_balance", { merchant_id: merchant, currency });
    const values = columns.map(({ name }, nth) => `${name.replaceAll("_", " ")} ${rows[0]?.[nth]}`);
    place("found").textContent = rows.length ? `${values.join(", ")} (epoch ${epoch})` : "no balance";
  } catch (error) {
    place("found").textContent = error.message;
  }
});

look();
