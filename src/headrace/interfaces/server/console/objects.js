// The objects of a catalog: who may do what, in which order they are shown, and which a search finds.
import { linkTo, shortKind } from "./dom.js";

const ROLES = ["reader", "writer", "owner"];
const MOST_FOUND = 12;

/** Whether a role includes what another one may do; null is no role. */
export const includes = (role, wanted) => ROLES.indexOf(role) >= ROLES.indexOf(wanted);

/** Return candidates, each before those that go with it. */
export function inOrder(found) {
  const goesWith = ({ swapped_with: others }) => others?.split(", ") ?? [];
  const placed = new Set();
  const place = (each) => placed.has(each) ? [] : [placed.add(each) && each, ...found.filter((other) => goesWith(other).includes(each.name)).flatMap(place)];
  return [...found.filter((each) => !found.some(({ name }) => goesWith(each).includes(name))), ...found].flatMap(place);
}

/** Return streams and tables, each source of several tables before those that it feeds. */
export function together(relations, shared) {
  const own = (name) => relations.filter(({ source }) => source.shared_source === name);
  const apart = relations.filter(({ source }) => !shared.some(({ name }) => name === source.shared_source));
  return [...shared.flatMap((source) => [{ name: source.name, kind: "source", state: source.state, source, freshness: null, delivery: null }, ...own(source.name)]), ...apart];
}

/** Return what can be found in a catalog: each with its name, kind, and the address that shows it. */
export function findable({ relations = [], sources = [], functions = [] } = {}, pages = []) {
  return [
    ...pages.map(({ path, title }) => ({ name: title, kind: "page", href: `#/${path}` })),
    ...relations.map(({ name, kind }) => ({ name, kind: shortKind(kind), href: linkTo(name) })),
    ...sources.map(({ name }) => ({ name, kind: "source", href: "#/sources" })),
    ...functions.map((name) => ({ name, kind: "function", href: `#/workbench/sql/${encodeURIComponent(`SHOW CREATE FUNCTION ${name}`)}` })),
    ...relations.flatMap(({ name, columns }) => columns.map((column) => ({ name: `${name}.${column.name}`, kind: column.type, href: linkTo(name, "definition"), column: column.name }))),
  ];
}

/** Return what has all words in its name, the best first: names before columns, those that begin so before others. */
export function found(all, asked) {
  const words = asked.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const rank = (each) => {
    const name = each.name.toLowerCase();
    const own = (each.column ?? name.slice(name.lastIndexOf(".") + 1)).toLowerCase();
    return (each.column === undefined ? 0 : 4) + (own === words[0] ? 0 : own.startsWith(words[0]) ? 1 : name.startsWith(words[0]) ? 2 : 3);
  };
  return all.filter(({ name }) => words.every((word) => name.toLowerCase().includes(word)))
    .map((each) => [rank(each), each]).sort(([a, x], [b, y]) => a - b || x.name.length - y.name.length).slice(0, MOST_FOUND).map(([, each]) => each);
}
