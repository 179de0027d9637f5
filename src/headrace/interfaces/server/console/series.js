// Values over moments, as charts draw them.

const LONGEST_SECONDS = 15;
const LONGEST_STEPS = 3;

/** Return moments in Unix seconds and their values, with null after each moment that the next one follows late: nothing is known of the time between. They lie `step` seconds apart. */
export function withGaps(at, values, step = 1) {
  const longest = Math.max(LONGEST_SECONDS, LONGEST_STEPS * step);
  const found = [[], []];
  at.forEach((time, index) => {
    if (index > 0 && time - at[index - 1] > longest) {
      found[0].push(at[index - 1] + 1);
      found[1].push(null);
    }
    found[0].push(time);
    found[1].push(values[index]);
  });
  return found;
}
