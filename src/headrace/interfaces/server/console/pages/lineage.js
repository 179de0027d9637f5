// The tab of a relation's lineage: the columns that its columns are made from, and those that are made from them.
import { get } from "../api.js";
import { errorBox, fill, h, linkTo, loading } from "../dom.js";
import { section } from "./problems.js";

const all = (column) => (column === "*" ? h("span", { class: "dim" }, "all columns") : column);
const related = (name, column) => h("span", {}, h("a", { href: linkTo(name, "lineage") }, name), column === "*" ? "" : `.${column}`);
const how = ({ influence }) => influence.replace("_", " ");

/** Show the lineage of a relation in both directions, the nearest relations first. */
export function lineageTab(place, { name }) {
  let closed = false;
  fill(place, loading());
  get(`/v1/lineage/${encodeURIComponent(name)}`).then(
    ({ upstream, downstream }) => closed || fill(place,
      section("Made from", upstream, [
        ["Column", (row) => all(row.column)], ["Depends on", (row) => related(row.input, row.input_column)], ["How", how], ["Kind", (row) => row.type, "dim"], ["Distance", (row) => String(row.distance), "num"], ["From", (row) => row.external ?? "", "dim"],
      ], "It is made from no other relation."),
      section("Used by", downstream, [
        ["Column", (row) => all(row.input_column)], ["Used by", (row) => related(row.relation, row.column)], ["How", how], ["Kind", (row) => row.type, "dim"], ["Distance", (row) => String(row.distance), "num"], ["To", (row) => row.external ?? "", "dim"],
      ], "Nothing depends on its columns.")),
    (error) => closed || fill(place, errorBox({ ...error.error, span: null })),
  );
  return () => {
    closed = true;
  };
}
