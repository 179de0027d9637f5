// Rows as CSV by RFC 4180: NULL is an empty field, an empty text is quoted.
const field = (value) => {
  if (value === null || value === undefined) return "";
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return text === "" || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

/** Return rows, arrays of values, under their columns' names. */
export const csvOf = (columns, rows) => [columns.map(({ name }) => name), ...rows].map((row) => `${row.map(field).join(",")}\r\n`).join("");

/** Have the browser save a text as a file. */
export function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
