// A drawing larger than its place: scrolled by touch, wheel or keys, dragged by the mouse, zoomed by buttons or Ctrl and the wheel.
import { h } from "./dom.js";

const LEAST = 0.3;
const MOST = 2;
const STEP = 1.25;
const DRAGGED = 4;
const PADDING = 14;

/** Make the place. `show(drawing)` puts an SVG element in it, as large as fits its width, but never too small to read. */
export function viewport(label, readable = 0.75) {
  const scroll = h("div", { class: "viewport", tabindex: "0", role: "region", "aria-label": label });
  const button = (text, title, onclick) => h("button", { type: "button", class: "action small", title, "aria-label": title, onclick }, text);
  const element = h("div", { class: "graph" }, scroll,
    h("div", { class: "zoom" }, button("−", "Zoom out", () => zoom(scale / STEP)), button("+", "Zoom in", () => zoom(scale * STEP)), button("Fit", "Fit the width", () => fit(LEAST))));
  let drawing = null;
  let size = { width: 1, height: 1 };
  let scale = 1;
  let chosen = false;

  function apply() {
    drawing?.setAttribute("width", size.width * scale);
    drawing?.setAttribute("height", size.height * scale);
  }
  function zoom(wanted) {
    const before = scale;
    scale = Math.min(MOST, Math.max(LEAST, wanted));
    chosen = true;
    const [x, y] = [scroll.scrollLeft + scroll.clientWidth / 2, scroll.scrollTop + scroll.clientHeight / 2];
    apply();
    scroll.scrollLeft = (x * scale) / before - scroll.clientWidth / 2;
    scroll.scrollTop = (y * scale) / before - scroll.clientHeight / 2;
  }
  function fit(least) {
    if (scroll.clientWidth === 0) return;
    scale = Math.min(1, Math.max(least, (scroll.clientWidth - PADDING) / size.width));
    chosen = false;
    apply();
  }

  scroll.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(scale * (event.deltaY < 0 ? STEP : 1 / STEP));
  }, { passive: false });
  let grip = null;
  let dragged = false;
  scroll.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "mouse" || event.button !== 0) return;
    grip = { x: event.clientX, y: event.clientY, left: scroll.scrollLeft, top: scroll.scrollTop };
    dragged = false;
  });
  const move = (event) => {
    if (grip === null) return;
    dragged ||= Math.abs(event.clientX - grip.x) + Math.abs(event.clientY - grip.y) > DRAGGED;
    scroll.scrollLeft = grip.left - (event.clientX - grip.x);
    scroll.scrollTop = grip.top - (event.clientY - grip.y);
  };
  const drop = () => {
    grip = null;
  };
  addEventListener("pointermove", move);
  addEventListener("pointerup", drop);
  scroll.addEventListener("dragstart", (event) => event.preventDefault());
  scroll.addEventListener("click", (event) => {
    if (dragged) event.preventDefault();
    dragged = false;
  }, true);
  const sized = new ResizeObserver(() => {
    if (!chosen) fit(readable);
  });
  sized.observe(scroll);

  return {
    element,
    get width() {
      return scroll.clientWidth;
    },
    show(made, width, height) {
      drawing = made;
      size = { width, height };
      scroll.replaceChildren(made);
      if (chosen) apply();
      else fit(readable);
    },
    close() {
      sized.disconnect();
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", drop);
    },
  };
}

/** Have what lies on the path of a node light up while it is pointed at or has the focus. */
export function lightPaths(root, items, edges, connected) {
  const light = (id) => {
    const found = connected(id, edges.map(({ edge }) => edge));
    root.classList.add("lit");
    for (const [other, element] of items) element.classList.toggle("on", found.nodes.has(other));
    for (const { edge, path } of edges) path.classList.toggle("on", found.lies(edge));
  };
  const dark = () => root.classList.remove("lit");
  for (const [id, element] of items) {
    element.addEventListener("pointerenter", () => light(id));
    element.addEventListener("pointerleave", dark);
    element.addEventListener("focus", () => light(id));
    element.addEventListener("blur", dark);
  }
}
