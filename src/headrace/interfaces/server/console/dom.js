// Elements and texts. Values from the server become text nodes, never markup.
import { marked } from "./span.js";

/** Make an element. `attributes` may have `class`, `on...` listeners, properties by `.name`. */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Make an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith(".")) element[name.slice(1)] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Replace the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set a text only where it differs, so that an idle page changes nothing. */
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const NONE = "–";

export const none = NONE;
export const count = (value) => (value === null || value === undefined ? NONE : whole.format(value));
export const compact = (value) =>
  value === null || value === undefined ? NONE : Math.abs(value) < 10000 ? whole.format(value) : short.format(value);

/** A count with its noun: "1 change", "2 changes". */
export const counted = (value, noun, plural = `${noun}s`) => `${count(value)} ${value === 1 ? noun : plural}`;

/** Bytes in powers of 1,000. */
export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  let left = value;
  while (left >= 1000 && unit < units.length - 1) {
    left /= 1000;
    unit += 1;
  }
  return `${unit === 0 || left >= 100 ? Math.round(left) : left.toFixed(1)} ${units[unit]}`;
}

/** A share as a percentage: of 1, and of what is more than nothing at least "<0.1 %". */
export const percent = (share) => (share === 0 ? "0 %" : share < 0.001 ? "<0.1 %" : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`);

/** A span of time in the unit that suits it. */
export function seconds(value) {
  if (value === null || value === undefined) return NONE;
  if (value === 0) return "0 s";
  if (value < 0.001) return "<1 ms";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86400)} days`;
}

/** A round span of time, as a scale has it, in the largest unit of which it is a multiple. */
export function roundTime(value) {
  const [unit, size] = [["days", 86400], ["h", 3600], ["min", 60], ["s", 1]].find(([, of]) => value > 0 && value % of === 0) ?? [null, 1];
  return unit === null ? seconds(value) : value === 86400 ? "1 day" : `${value / size} ${unit}`;
}

/** A moment in Unix seconds: the time of day, with the date unless it is today. */
export function moment(value) {
  if (value === null || value === undefined) return NONE;
  const at = new Date(value * 1000);
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString("en-CA")} ${time}`;
}

/** A value of a row, as text. */
export function shown(value) {
  if (value === null || value === undefined) return "NULL";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** A number as text with its digits in groups of three. */
export function grouped(value) {
  const found = /^(-?)(\d+)(\.\d+)?$/.exec(String(value));
  if (found === null) return String(value);
  return `${found[1]}${found[2].replace(/\B(?=(\d{3})+$)/g, ",")}${found[3] ?? ""}`;
}

/** What is shown until the first answer. */
export const loading = () => h("p", { class: "note loading", role: "status" }, "Loading…");

/** A dot and words: never the colour alone. `tone` is "", "warn", "bad" or "idle". */
export function toned(tone, words) {
  return h("span", { class: "state-of" }, h("span", { class: `dot ${tone}`, "aria-hidden": "true" }), words);
}

/** A kind of relation, in a word where that is clear. */
export const shortKind = (kind) => (kind === "materialized view" ? "view" : kind);

/** The link to the page of a relation, and to a tab of it. */
export const linkTo = (name, tab = null) => `#/relation/${encodeURIComponent(name)}${tab === null ? "" : `/${tab}`}`;

/** How long ago something was, by the clock of this machine. */
export const ago = (at) => `${seconds(Math.max(0, Math.round((Date.now() / 1000 - at) * 10) / 10))} ago`;

/** An error of the server: what, why, what to do, and the place in the statement. */
export function errorBox(error) {
  const box = h("div", { class: "error", role: "alert" });
  box.append(h("p", {}, h("strong", {}, `${error.code}: `), error.primary));
  if (error.detail) box.append(h("p", {}, error.detail));
  if (error.hint) box.append(h("p", { class: "dim" }, error.hint));
  if (error.span) {
    const { line, indent, carets } = marked(error.span);
    box.append(h("pre", {}, `${line}\n${indent}`, h("span", { class: "mark" }, "^".repeat(carets))));
  }
  return box;
}
