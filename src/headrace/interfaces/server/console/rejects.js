// Rejected rows: those of like reasons together, and each as a line of JSON that can be corrected and appended again.

const NUMERIC = /^(tinyint|smallint|int|bigint|float|double|decimal)/;
const NUMBER = /^-?\d+(\.\d+)?$/;

/** Return the reason of a reject without what is only in its row: values, and places in its text. */
export function kindOf({ reason }, columns) {
  return reason
    .replace(/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/g, (found) => (columns.includes(found.slice(1, -1)) ? found : "“…”"))
    .replace(/\b(line|column|char|position|offset) \d+/g, "$1 …")
    .replace(/(^|[\s(])-?\d[\d,.]*(?:e[+-]?\d+)?(?=\s)/gi, "$1…");
}

/** Return groups of rejects with like reasons in the same column, the largest first, each with its newest first. */
export function groupsOf(rejects, columns) {
  const found = new Map();
  for (const each of rejects) {
    const reason = kindOf(each, columns);
    const key = JSON.stringify([each.column, reason]);
    if (!found.has(key)) found.set(key, { key, column: each.column, reason, rejects: [] });
    found.get(key).rejects.push(each);
  }
  return [...found.values()].sort((a, b) => b.rejects.length - a.rejects.length);
}

/** Return the fields of a line of CSV; null if it is none. */
function fieldsOf(line) {
  const found = [];
  const field = /(?:"((?:[^"]|"")*)"|([^",]*))(,|$)/y;
  for (;;) {
    const each = field.exec(line);
    if (each === null) return null;
    found.push(each[1] === undefined ? each[2] : each[1].replaceAll('""', '"'));
    if (each[3] === "") return found;
  }
}

/**
 * Return the text of a reject as a line of JSON with the relation's columns; as it is, if it is neither JSON nor CSV.
 *
 * Numbers stay as they are written, whatever their size.
 */
export function lineOf(raw, columns) {
  const text = raw.trim();
  if (text.startsWith("{")) return text.replace(/\s*\n\s*/g, " ");
  const fields = fieldsOf(text);
  if (fields === null || fields.length !== columns.length) return text;
  const values = columns.map(({ name, type }, index) => {
    const value = fields[index];
    return `${JSON.stringify(name)}: ${value === "" ? "null" : NUMERIC.test(type) && NUMBER.test(value) ? value : JSON.stringify(value)}`;
  });
  return `{${values.join(", ")}}`;
}
