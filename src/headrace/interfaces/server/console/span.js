// Where an error is in its statement: the line to show, and the carets below it. Positions are in code points.

/** A position in a text of so many code points, whatever was given. */
const within = (value, length) => Math.min(Math.max(Math.trunc(Number(value) || 0), 0), length);

/**
 * Return the first line that a span marks, how far it is indented, and how many carets mark it.
 *
 * Whatever the span is, the numbers are ones that `repeat` takes: a span may cover several lines,
 * begin with a line break, be empty, or lie outside of the text.
 */
export function marked({ text, start, end }) {
  const points = Array.from(text ?? "");
  let from = within(start, points.length);
  const to = Math.max(from, within(end, points.length));
  while (from < to && /\s/.test(points[from])) from += 1;
  if (from === to) from = within(start, points.length);
  const before = from === 0 ? -1 : points.lastIndexOf("\n", from - 1);
  const next = points.indexOf("\n", from);
  const lineEnd = next < 0 ? points.length : next;
  const line = points.slice(before + 1, lineEnd);
  const indent = line.slice(0, from - before - 1).map((each) => (each === "\t" ? "\t" : " ")).join("");
  return { number: points.slice(0, from).filter((each) => each === "\n").length + 1, line: line.join(""), indent, carets: Math.max(1, Math.min(to, lineEnd) - from) };
}

/** Return a span as positions in JavaScript's units; null if the text is not the one it is in. */
export function unitsOf(span, sql) {
  if (!span || !span.text) return null;
  const base = sql.indexOf(span.text);
  if (base < 0) return null;
  const points = Array.from(span.text);
  const from = within(span.start, points.length);
  const units = (count) => points.slice(0, count).join("").length;
  return { from: base + units(from), to: base + units(Math.max(from, within(span.end, points.length))) };
}
