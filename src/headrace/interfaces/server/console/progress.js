// How far something is that takes its time.
import { count, h, none, seconds } from "./dom.js";

/** What a statement or a sink has done, as a bar and in words. */
export function progressOf(progress) {
  if (progress === null) return h("span", { class: "dim" }, none);
  const { what, done, total, unit, rejected, rate, seconds_left: left } = progress;
  if (!unit) return h("span", {}, what);
  const pace = rate ? `, ${count(Math.round(rate))} ${unit}/s${left ? `, ${seconds(left)} left` : ""}` : "";
  const said = `${what}: ${count(done)}${total === null ? "" : ` of ${count(total)}`} ${unit}${rejected ? `, ${count(rejected)} rejected` : ""}${pace}`;
  return [total ? h("progress", { max: total, value: done, "aria-label": said }) : null, h("div", {}, said)];
}
