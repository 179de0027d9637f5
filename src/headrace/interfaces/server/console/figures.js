// The figures that charts draw: of each second as they come, or of hours, read again as these pass.
import { get } from "./api.js";
import { onSpan, shownSpan } from "./charts.js";
import { history, now, watchStatus } from "./status.js";

const LIVE_SECONDS = 900;
const MOST = 900;
const OWN = ["pending", "seconds", "rows"];
const AGAIN_MILLISECONDS = 15000;

/**
 * Call `draw(figures, step)` with lists of figures by name, and their moments `at`, whenever there are new ones; with a
 * name, those of that relation. `step` is how many seconds lie between two of them. Return what ends that.
 */
export function followFigures(name, draw) {
  const own = name === null ? null : { at: [], ...Object.fromEntries(OWN.map((each) => [each, []])) };
  let timer = null;
  let closed = false;
  let live = shownSpan() <= LIVE_SECONDS;

  const drawLive = () => live && draw(name === null ? history : own, 1);

  async function load() {
    clearTimeout(timer);
    const span = shownSpan();
    live = span <= LIVE_SECONDS;
    if (live && name === null) return drawLive();
    try {
      const found = await get("/v1/history", { seconds: Math.max(span, LIVE_SECONDS), relation: name ?? undefined });
      if (closed || span !== shownSpan()) return undefined;
      const figures = name === null ? found : { at: found.at, ...found.relation };
      if (live) Object.assign(own, figures);
      draw(live ? own : figures, live ? 1 : found.step);
    } catch {
      // The next time, or the next moments, fill the charts.
    }
    if (!live && !closed) timer = setTimeout(() => (document.hidden ? again() : load()), AGAIN_MILLISECONDS);
    return undefined;
  }
  const again = () => {
    timer = setTimeout(() => (document.hidden ? again() : load()), AGAIN_MILLISECONDS);
  };

  const ends = [onSpan(load), watchStatus((moment) => {
    // A rate is known from the second moment on.
    const known = now.rates[name] !== undefined || !(name in moment.sources);
    if (own !== null && known && moment.at > (own.at.at(-1) ?? 0)) {
      const [pending, seconds] = moment.views[name] ?? [null, null];
      const values = { at: moment.at, pending, seconds, rows: now.rates[name] ?? null };
      for (const [figure, value] of Object.entries(values)) {
        own[figure].push(value);
        if (own[figure].length > MOST) own[figure].shift();
      }
    }
    drawLive();
  })];
  load();
  return () => {
    closed = true;
    clearTimeout(timer);
    for (const end of ends) end();
  };
}
