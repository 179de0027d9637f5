// How the database does: the last minutes at once, then a moment every second, for all who watch.
import { get, listen } from "./api.js";

const KEPT = 900;
const NAMES = ["at", "epoch", "epochs", "epoch_seconds", "rows", "pending", "seconds"];

const watchers = new Set();
export const history = Object.fromEntries(NAMES.map((name) => [name, []]));
export const now = { moment: null, rates: {}, connection: "connecting" };

/** Call `watch` with each moment, and at once if there is one; return what ends that. */
export function watchStatus(watch) {
  watchers.add(watch);
  if (now.moment !== null) watch(now.moment);
  return () => watchers.delete(watch);
}

/** Begin to follow; `connection` is called when the connection changes. */
export function followStatus(connection) {
  listen("/v1/status", {}, {
    restart: load,
    state(state) {
      if (state === "live" && now.connection !== "live") load();
      now.connection = state;
      connection(state);
    },
    error: (error) => connection(error.code === "forbidden" ? "signed out" : error.primary),
    event(_kind, moment) {
      take(moment);
      connection("live");
    },
  });
}

async function load() {
  try {
    const found = await get("/v1/history");
    for (const name of NAMES) history[name] = found[name];
  } catch {
    // The next moments fill the charts.
  }
}

function take(moment) {
  const before = now.moment;
  const passed = before === null ? 0 : moment.at - before.at;
  now.rates = {};
  if (passed > 0 && passed < 10) {
    for (const [name, end] of Object.entries(moment.sources)) {
      now.rates[name] = Math.max(0, end - (before.sources[name] ?? 0)) / passed;
    }
  }
  now.moment = moment;
  if (moment.at > (history.at.at(-1) ?? 0)) {
    for (const name of NAMES) {
      history[name].push(moment[name]);
      if (history[name].length > KEPT) history[name].shift();
    }
  }
  for (const watch of watchers) watch(moment);
}
