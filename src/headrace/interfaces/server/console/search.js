// A search over all that there is: relations, their columns, sources, functions and the console's pages.
import { catalog } from "./catalog.js";
import { fill, h } from "./dom.js";
import { findable, found } from "./objects.js";

/** Make the field and its list, by the pattern of a combobox; "/" anywhere leads to it. */
export function search(place, pages) {
  const list = h("ul", { id: "found", role: "listbox", "aria-label": "Found", hidden: true });
  const field = h("input", {
    type: "search", placeholder: "Search", "aria-label": "Search all objects", role: "combobox", "aria-expanded": "false", "aria-controls": "found", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false",
    oninput: draw, onfocus: draw, onkeydown: press, onblur: () => setTimeout(close, 150),
  });
  let shown = [];
  let at = 0;
  fill(place, field, h("kbd", { "aria-hidden": "true" }, "/"), list);

  function close() {
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  }

  function draw() {
    at = 0;
    shown = found(findable(catalog() ?? {}, pages), field.value);
    if (!field.value.trim()) return close();
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
    fill(list, shown.map((each, index) => h("li", { role: "option", id: `found-${index}`, onmousedown: (event) => (event.preventDefault(), open(index)) }, h("span", {}, each.name), h("span", { class: "dim" }, each.kind))),
      shown.length ? null : h("li", { class: "dim" }, "Nothing has this name."));
    return mark();
  }

  function mark() {
    [...list.children].forEach((each, index) => each.setAttribute("aria-selected", String(index === at && shown.length > 0)));
    if (shown.length) field.setAttribute("aria-activedescendant", `found-${at}`);
  }

  function open(index) {
    if (shown[index] === undefined) return;
    location.hash = shown[index].href.slice(1);
    field.value = "";
    close();
    field.blur();
  }

  function press(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && shown.length) {
      event.preventDefault();
      at = (at + step + shown.length) % shown.length;
      mark();
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(at);
    } else if (event.key === "Escape") {
      field.value = "";
      close();
    }
  }

  document.addEventListener("keydown", (event) => {
    const writes = event.target.closest?.("input, textarea, select, [contenteditable], .editor, dialog");
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || writes) return;
    event.preventDefault();
    field.focus();
  });
}
