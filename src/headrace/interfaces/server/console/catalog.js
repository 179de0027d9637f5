// The catalog, read every few seconds for all who watch it, and at once after a statement.
import { get } from "./api.js";

const SECONDS = 4;
const watchers = new Set();
let last = null;
let timer = null;
let reading = false;

export const catalog = () => last;

/** Call `watch` with each catalog, and at once if one is known; return what ends that. */
export function watchCatalog(watch) {
  watchers.add(watch);
  if (last !== null) watch(last);
  refresh();
  return () => watchers.delete(watch);
}

/** Read the catalog now. */
export async function refresh() {
  clearTimeout(timer);
  if (reading) return;
  reading = true;
  try {
    last = await get("/v1/catalog");
    for (const watch of watchers) watch(last);
  } catch {
    // The connection's state says so; the last catalog stays.
  } finally {
    reading = false;
    timer = setTimeout(refresh, SECONDS * 1000);
  }
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else if (last !== null) refresh();
});
