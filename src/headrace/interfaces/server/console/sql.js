// SQL: names and texts as statements have them; keywords, strings, numbers and comments in colour.
import { h } from "./dom.js";
import { catalog } from "./catalog.js";

const TOKEN = /(--[^\n]*|\/\*[\s\S]*?\*\/)|('(?:[^']|'')*')|(`[^`]*`|"[^"]*")|(\b\d+(?:\.\d+)?\b)|(\b[A-Za-z_]\w*\b)/g;

/** A name as statements have it: a part that could be a word of the language is quoted. */
export function quoted(name) {
  const words = new Set(catalog()?.keywords ?? []);
  const plain = (part) => /^[a-z_][a-z0-9_]*$/i.test(part) && !words.has(part.toUpperCase());
  return name.split(".").map((part) => (plain(part) ? part : `\`${part.replaceAll("`", "``")}\``)).join(".");
}

/** A text as statements have it. */
export const literal = (value) => `'${value.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;

/** A block with a statement. */
export function sqlBlock(sql) {
  const words = new Set(catalog()?.keywords ?? []);
  const block = h("pre", { class: "sql", tabindex: "0", role: "region", "aria-label": "SQL" });
  let at = 0;
  for (const found of sql.matchAll(TOKEN)) {
    const [token, comment, string, , number, word] = found;
    const kind = comment ? "c" : string ? "s" : number ? "n" : word && words.has(word.toUpperCase()) ? "k" : null;
    if (kind === null) continue;
    block.append(sql.slice(at, found.index), h("span", { class: kind }, token));
    at = found.index + token.length;
  }
  block.append(sql.slice(at));
  return block;
}
