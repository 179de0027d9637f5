import assert from "node:assert/strict";
import { test } from "node:test";
import { parsed } from "../console/api.js";
import { csvOf } from "../console/csv.js";
import { counted, grouped, roundTime, seconds } from "../console/dom.js";
import { currency, errorParts, problemsOf, toneOf } from "../console/problems.js";
import { withGaps } from "../console/series.js";

const view = (state, freshness = {}) => ({ name: "v", kind: "materialized view", state, source: null, delivery: null, freshness: { quarantined: 0, dirty_slices: 0, next_refresh: null, ...freshness } });

test("a dot is green only if nothing is wrong and nothing has waited for long", () => {
  assert.equal(toneOf(view("running"), 0), "");
  assert.equal(toneOf(view("running"), 26), "warn");
  assert.equal(toneOf(view("running", { quarantined: 1 }), 0), "warn");
  assert.equal(toneOf(view("running", { dirty_slices: 2 }), 0), "warn");
  assert.equal(toneOf(view("stopped"), 0), "bad");
  assert.equal(toneOf(view("lagging", { next_refresh: Date.now() / 1000 + 600 }), 3000), "");
  assert.equal(toneOf(view("lagging", { next_refresh: Date.now() / 1000 - 600 }), 3000), "warn");
  assert.equal(toneOf({ kind: "stream", state: "running", freshness: null, delivery: null, source: { rejected: 3, error: null } }), "warn");
  assert.equal(toneOf({ kind: "sink", state: "running", freshness: null, source: null, delivery: { refused: 1, error: null } }), "warn");
  assert.equal(toneOf({ kind: "sink", state: "failing", freshness: null, source: null, delivery: { refused: 0, error: "refused" } }), "bad");
});

test("problems are counted in words, with the tab that shows them", () => {
  assert.deepEqual(problemsOf(view("running", { quarantined: 1 })), [{ tone: "warn", tab: "problems", text: "1 row in quarantine" }]);
  assert.equal(problemsOf(view("running", { quarantined: 2 }))[0].text, "2 rows in quarantine");
});

test("a problem says what is wrong, without the error's code, detail and hint", () => {
  const error = "error[unavailable]: http://a does not take changes\ndetail: Connection refused.\nhint: Start it.";
  assert.deepEqual(errorParts(error), { primary: "http://a does not take changes", detail: "Connection refused.", hint: "Start it." });
  assert.deepEqual(errorParts("made up"), { primary: "made up", detail: null, hint: null });
  const sink = { kind: "sink", state: "failing", freshness: null, source: null, delivery: { refused: 0, error } };
  assert.deepEqual(problemsOf(sink), [{ tone: "bad", tab: "problems", text: "failing: http://a does not take changes" }]);
});

test("a chart has a gap where no moment is known for a while", () => {
  assert.deepEqual(withGaps([1, 2, 40, 41], [5, 6, 7, 8]), [[1, 2, 3, 40, 41], [5, 6, null, 7, 8]]);
  assert.deepEqual(withGaps([], []), [[], []]);
});

test("a scale of time has whole minutes and hours", () => {
  assert.deepEqual([0, 0.5, 5, 60, 90, 120, 5400, 7200, 86400, 172800].map(roundTime), ["0 s", "500 ms", "5 s", "1 min", "90 s", "2 min", "90 min", "2 h", "1 day", "2 days"]);
});

test("words of counts, times and digits", () => {
  assert.equal(counted(1, "change"), "1 change");
  assert.equal(counted(1200, "change"), "1,200 changes");
  assert.equal(currency(0, 0), "up to date");
  assert.equal(currency(3, 2.13), "2.1 s behind");
  assert.equal(seconds(0.2), "200 ms");
  assert.deepEqual(["1234567.8900", "-1000", 999, "1E+20", "NaN"].map(grouped), ["1,234,567.8900", "-1,000", "999", "1E+20", "NaN"]);
});

test("CSV tells NULL from an empty text, and quotes what needs it", () => {
  assert.equal(csvOf([{ name: "a" }, { name: 'b"' }], [[null, ""], ["x,y", { z: 1 }]]), 'a,"b"""\r\n,""\r\n"x,y","{""z"":1}"\r\n');
});

test("whole numbers that JavaScript cannot hold keep their digits where the browser tells them", () => {
  const [large, small] = parsed("[9007199254740993, 12]");
  assert.equal(small, 12);
  assert.ok(large === "9007199254740993" || large === 9007199254740992);
});
