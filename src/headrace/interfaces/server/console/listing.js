// A table of what there is; where the page is narrow, each row is a card whose values have their column's title.
import { fill, h } from "./dom.js";

/**
 * Make a table. `columns` are titles, or a title with the attributes of its head.
 *
 * `wait()` says that they are still to come; `set(rows, none)` shows rows, and `none` where there are no rows; a cell that spans columns has no title in its card.
 */
export function listing(label, columns, { tall = false, kind = null } = {}) {
  const heads = columns.map((column) => (Array.isArray(column) ? column : [column, {}]));
  const body = h("tbody");
  const element = h("div", { class: tall ? "scroll tall" : "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", { class: kind === null ? "cards" : `cards ${kind}` },
      h("thead", {}, h("tr", {}, heads.map(([title, attributes]) => h("th", { scope: "col", ...attributes }, title)))),
      body));
  return {
    element,
    body,
    /** Say that the rows are still to come. */
    wait: () => fill(body, h("tr", {}, h("td", { colspan: heads.length, class: "dim loading" }, "Loading…"))),
    set(rows, none = "") {
      for (const row of rows) {
        [...row.cells].forEach((cell, index) => {
          const [title] = heads[index];
          if (cell.colSpan === 1 && typeof title === "string") cell.dataset.title = title;
        });
      }
      fill(body, rows.length || !none ? rows : h("tr", {}, h("td", { colspan: heads.length, class: "dim" }, none)));
    },
  };
}
