// A line of the last minutes, as high as its greatest value.
import { svg } from "./dom.js";

const WIDTH = 120;
const HEIGHT = 22;
const SECONDS = 120;

export function sparkline() {
  const line = svg("path", { class: "spark" });
  const element = svg("svg", { width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" }, line);
  return {
    element,
    /** Draw values, the latest last; the width stands for two minutes. */
    set(values) {
      const most = Math.max(1, ...values);
      const step = WIDTH / (SECONDS - 1);
      const from = WIDTH - (values.length - 1) * step;
      const points = values.map((value, index) => `${(from + index * step).toFixed(1)},${(HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1)}`);
      line.setAttribute("d", points.length > 1 ? `M${points.join("L")}` : "");
    },
  };
}
