// What pages say of rejected rows, sources, candidates and roles, and what the search finds.
import assert from "node:assert/strict";
import { test } from "node:test";
import { percent } from "../console/dom.js";
import { findable, found, includes, inOrder, together } from "../console/objects.js";
import { problemsOf } from "../console/problems.js";
import { groupsOf, kindOf, lineOf } from "../console/rejects.js";
import { withGaps } from "../console/series.js";

const columns = [{ name: "id", type: "int" }, { name: "name", type: "string" }, { name: "price", type: "decimal(38,2)" }];

test("rejected rows with like reasons are one group, whatever their values are", () => {
  const rejects = [["id", '"two" is not an INT'], ["id", '"x7" is not an INT'], ["price", '"a lot" is not a DECIMAL(10,2)'], [null, "not JSON: Expecting value: line 1 column 2 (char 1)"], [null, "not JSON: Expecting value: line 3 column 9 (char 8)"]]
    .map(([column, reason], id) => ({ id, column, reason }));
  assert.deepEqual(groupsOf(rejects, ["id"]).map(({ column, reason, rejects: own }) => [column, reason, own.length]), [
    ["id", "“…” is not an INT", 2], [null, "not JSON: Expecting value: line … column … (char …)", 2], ["price", "“…” is not a DECIMAL(10,2)", 1]]);
  assert.equal(kindOf({ reason: 'no column "nam", as in "x"' }, ["nam"]), 'no column "nam", as in “…”');
});

test("a rejected row becomes a line of JSON to be corrected, with its numbers as they are written", () => {
  assert.equal(lineOf('{"id": "two",\n "name": "bob"}', columns), '{"id": "two", "name": "bob"}');
  assert.equal(lineOf('two,"a ""b"", c",12345678901234567890.10', columns), '{"id": "two", "name": "a \\"b\\", c", "price": 12345678901234567890.10}');
  assert.equal(lineOf("3,,", columns), '{"id": 3, "name": null, "price": null}');
  assert.equal(lineOf("one, two", columns), "one, two");
});

test("what is acknowledged is no problem any more", () => {
  const table = (rejected, acknowledged) => ({ kind: "table", state: "running", freshness: null, delivery: null, source: { rejected, acknowledged, error: null } });
  assert.deepEqual(problemsOf(table(3, 1)).map(({ text }) => text), ["2 rows rejected"]);
  assert.deepEqual(problemsOf(table(3, 3)), []);
  const sink = { kind: "sink", state: "running", freshness: null, source: null, delivery: { refused: 2, acknowledged: 2, error: null } };
  assert.deepEqual(problemsOf(sink), []);
});

test("a candidate stands before those that go with it", () => {
  const all = [{ name: "a", swapped_with: "z" }, { name: "b", swapped_with: null }, { name: "c", swapped_with: "a" }, { name: "z", swapped_with: null }];
  assert.deepEqual(inOrder(all).map(({ name }) => name), ["b", "z", "a", "c"]);
});

test("a source of several tables stands before those that it feeds", () => {
  const table = (name, shared) => ({ name, kind: "table", source: { shared_source: shared } });
  const all = together([table("a", null), table("b", "shop"), table("c", "shop"), table("d", "gone")], [{ name: "shop", state: "running", behind: 4096 }]);
  assert.deepEqual(all.map(({ name, kind }) => [name, kind]), [["shop", "source"], ["b", "table"], ["c", "table"], ["a", "table"], ["d", "table"]]);
});

test("an owner may what a writer may, and nobody without a role", () => {
  assert.ok(includes("owner", "writer") && includes("writer", "writer"));
  assert.ok(!includes("reader", "writer") && !includes(null, "reader"));
});

test("the search finds names before columns, and what begins so before the rest", () => {
  const all = findable({ relations: [{ name: "gold.users", kind: "table", columns: [{ name: "user", type: "string" }] }, { name: "by_user", kind: "materialized view", columns: [] }], sources: [{ name: "users_db" }], functions: ["vat"] }, [{ path: "sources", title: "Sources" }]);
  assert.deepEqual(found(all, "USER").map(({ name }) => name), ["users_db", "gold.users", "by_user", "gold.users.user"]);
  assert.deepEqual(found(all, "gold us").map(({ name, kind }) => [name, kind]), [["gold.users", "table"], ["gold.users.user", "string"]]);
  assert.deepEqual(found(all, "vat").map(({ kind }) => kind), ["function"]);
  assert.deepEqual(found(all, " "), []);
});

test("a share is never shown as nothing unless it is", () => {
  assert.deepEqual([0, 0.0004, 0.084, 0.23, 1].map(percent), ["0 %", "<0.1 %", "8.4 %", "23 %", "100 %"]);
});

test("a chart of a day has a gap where spans of ten minutes are missing", () => {
  assert.deepEqual(withGaps([0, 600, 1200], [1, 2, 3], 600), [[0, 600, 1200], [1, 2, 3]]);
  assert.deepEqual(withGaps([0, 6000], [1, 2], 600)[1], [1, null, 2]);
});
