// The statements that were run in this browser's workbench, newest first.

const PLACE = "headrace.recent";
const MOST = 100;
const HIDDEN = /\b(secret|password|token|credential)/i;

export function recent() {
  try {
    return JSON.parse(localStorage.getItem(PLACE) ?? "[]");
  } catch {
    return [];
  }
}

/** Keep a statement that ran; one that may have a secret in it is not kept. */
export function remember(sql, ok) {
  const text = sql.trim();
  if (!text || HIDDEN.test(text)) return;
  const kept = [{ sql: text, at: Date.now() / 1000, ok }, ...recent().filter((each) => each.sql !== text)].slice(0, MOST);
  try {
    localStorage.setItem(PLACE, JSON.stringify(kept));
  } catch {
    // The browser keeps nothing: the list is only a convenience.
  }
}
