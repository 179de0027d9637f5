// What is wrong with a relation: rows left out, slices that are dirty, what has stopped. Amber asks to be looked at, red has stopped.
import { count, counted, seconds } from "./dom.js";

const LATE_SECONDS = 5;
const STOPPED = new Set(["stopped", "failing", "failed"]);
const WELL = new Set(["running", "finished", "lagging", "not stored", "starting"]);

/** Return the problems of a relation, the worst first: `tone`, `text`, and the `tab` of its page that shows more. */
export function problemsOf(relation) {
  const found = [];
  const add = (tone, tab, text) => found.push({ tone, tab, text });
  const { freshness, source, delivery, state, kind } = relation;
  const error = delivery?.error ?? source?.error ?? freshness?.error ?? null;
  const why = error === null ? null : errorParts(error).primary;
  if (STOPPED.has(state)) add("bad", kind === "stream" || kind === "table" ? "rejected" : "problems", why === null ? state : `${state}: ${why}`);
  else if (!WELL.has(state)) add("warn", "problems", why ? `${state}: ${why}` : state);
  else if (why) add("warn", "problems", why);
  if (freshness?.quarantined) add("warn", "problems", `${counted(freshness.quarantined, "row")} in quarantine`);
  if (freshness && freshness.quarantined === null) add("warn", "problems", "the quarantine cannot be read");
  if (freshness?.dirty_slices && !STOPPED.has(state)) add("warn", "problems", `${counted(freshness.dirty_slices, "dirty slice")}`);
  if (unacknowledged(source)) add("warn", "rejected", `${counted(unacknowledged(source), "row")} rejected`);
  if (unacknowledged(delivery)) add("warn", "problems", `${counted(unacknowledged(delivery), "row")} refused by the target`);
  return found;
}

/** Return how many rows that a source rejected, or the target of a sink refused, nobody has acknowledged. */
export const unacknowledged = (part) => Math.max(0, (part?.rejected ?? part?.refused ?? 0) - (part?.acknowledged ?? 0));

/** Return the parts of an error that the server has as one text: what, in detail, and what to do; null for a part it does not have. */
export function errorParts(text) {
  const [primary, ...rest] = String(text).replace(/^error\[\w+\]: /, "").split(/\n(?=(?:detail|hint): )/);
  const part = (name) => rest.find((each) => each.startsWith(`${name}: `))?.slice(name.length + 2) ?? null;
  return { primary, detail: part("detail"), hint: part("hint") };
}

/** Return the colour of a relation's dot, "" for green; `behind` is for how many seconds a view's oldest change has waited. */
export function toneOf(relation, behind = 0) {
  const tones = problemsOf(relation).map(({ tone }) => tone);
  if (tones.includes("bad")) return "bad";
  if (tones.length > 0) return "warn";
  if (relation.state === "not stored") return "idle";
  return toneOfAge(relation, behind);
}

/** Return the colour of what is behind: amber after some seconds, unless the view is refreshed at times and not due. */
export function toneOfAge(relation, behind) {
  const due = relation?.freshness?.next_refresh ?? null;
  if (relation?.state === "lagging") return due !== null && Date.now() / 1000 > due + LATE_SECONDS ? "warn" : "";
  return (behind ?? 0) >= LATE_SECONDS ? "warn" : "";
}

/** Return in words how current a view is. */
export function currency(pending, behind) {
  if (pending === null || pending === undefined) return "stopped";
  if (pending === 0) return "up to date";
  return `${seconds(behind)} behind`;
}

/** Return the notes on a source that are no problems: rows that came late or twice. */
export function notesOf(source) {
  const found = [];
  if (source?.late) found.push(`${count(source.late)} late`);
  if (source?.duplicates) found.push(`${counted(source.duplicates, "duplicate")}`);
  return found;
}
