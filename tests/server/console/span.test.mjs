import assert from "node:assert/strict";
import { test } from "node:test";
import { marked, unitsOf } from "../console/span.js";
import { seeded } from "./random.mjs";

test("a span of several lines is marked on its first line", () => {
  const text = "SELECT url,\n  visits,\n  1 / 0 AS x\nFROM v";
  assert.deepEqual(marked({ text, start: 0, end: text.length }), { number: 1, line: "SELECT url,", indent: "", carets: 11 });
  assert.deepEqual(marked({ text, start: 14, end: 40 }), { number: 2, line: "  visits,", indent: "  ", carets: 7 });
});

test("a span that begins with a line break is marked where its first word is", () => {
  assert.deepEqual(marked({ text: "a\n b", start: 1, end: 4 }), { number: 2, line: " b", indent: " ", carets: 1 });
});

test("any span can be drawn, and no caret is outside of its line", () => {
  const random = seeded(10);
  for (let round = 0; round < 20000; round += 1) {
    const text = Array.from({ length: random.below(40) }, () => random.one(["a", " ", "\n", "\t", "é", "😀", ";", "\r\n"])).join("");
    const start = random.below(60) - 10;
    const end = random.one([start, start + random.below(40), random.below(60) - 10, undefined]);
    const found = marked({ text, start, end });
    const drawn = `${found.line}\n${found.indent}${"^".repeat(found.carets)}`;
    assert.ok(found.carets >= 1, JSON.stringify({ text, start, end, drawn }));
    assert.ok(!found.line.includes("\n") && text.split("\n").includes(found.line));
    assert.ok(Array.from(found.indent).length + found.carets <= Math.max(1, Array.from(found.line).length + 1), JSON.stringify({ text, start, end, found }));
    const place = unitsOf({ text, start, end }, `SELECT 1; ${text}`);
    if (place !== null) assert.ok(place.from <= place.to && place.from >= 0);
  }
});
