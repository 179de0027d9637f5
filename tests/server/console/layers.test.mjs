import assert from "node:assert/strict";
import { test } from "node:test";
import { connectedNodes } from "../console/circuit.js";
import { columnsOf } from "../console/graph.js";
import { connected, layered } from "../console/layers.js";
import { seeded } from "./random.mjs";

/** Points along an edge as it is drawn. */
function* along({ points, back }) {
  for (let index = 1; index < points.length; index += 1) {
    const [a, b] = [points[index - 1], points[index]];
    for (let step = 0; step <= 20; step += 1) {
      const t = step / 20;
      const s = 1 - t;
      const straight = !back && index % 2 === 0;
      const middle = (a.x + b.x) / 2;
      yield straight
        ? { x: a.x + (b.x - a.x) * t, y: a.y }
        : { x: s ** 3 * a.x + 3 * s * s * t * middle + 3 * s * t * t * middle + t ** 3 * b.x, y: a.y * (s ** 3 + 3 * s * s * t) + b.y * (3 * s * t * t + t ** 3) };
    }
  }
}

const within = ({ x, y }, node) => x > node.x + 0.01 && x < node.x + node.width - 0.01 && y > node.y + 0.01 && y < node.y + node.height - 0.01;

test("no edge runs through a node, no two nodes overlap, and each stands in its column", () => {
  const random = seeded(19);
  for (let round = 0; round < 150; round += 1) {
    const count = 2 + random.below(24);
    const nodes = Array.from({ length: count }, (_, id) => ({ id, column: random.below(6), width: 80 + random.below(120), height: 42 }));
    const used = [...new Set(nodes.map(({ column }) => column))].sort((a, b) => a - b);
    for (const node of nodes) node.column = used.indexOf(node.column);
    const edges = Array.from({ length: random.below(2 * count) }, () => ({ from: random.below(count), to: random.below(count) })).filter(({ from, to }) => nodes[from].column < nodes[to].column);
    const plan = layered(nodes, edges);
    assert.equal(plan.edges.length, edges.length);
    for (const node of plan.nodes) {
      assert.equal(node.x, plan.columns[node.column].x);
      assert.ok(node.x >= 0 && node.y >= 0 && node.x + node.width <= plan.width && node.y + node.height <= plan.height);
      for (const other of plan.nodes) if (other.id < node.id && other.column === node.column) assert.ok(other.y + other.height <= node.y || node.y + node.height <= other.y);
    }
    for (const edge of plan.edges) for (const point of along(edge)) assert.ok(!plan.nodes.some((node) => within(point, node)), `round ${round}: ${edge.from} to ${edge.to}`);
  }
});

test("sources, views by their distance, sinks, and tables that only sinks write stand in columns of their own", () => {
  const relation = (name, kind, inputs = [], target = null) => ({ name, kind, inputs, target });
  const { columns, titles } = columnsOf([
    relation("orders", "stream"), relation("prices", "table"), relation("archive", "table"), relation("loop", "table"),
    relation("lines", "materialized view", ["orders", "prices"]), relation("totals", "materialized view", ["lines", "prices"]), relation("also", "plain view", ["loop"]),
    relation("to_archive", "sink", ["totals"], "archive"), relation("to_loop", "sink", ["lines"], "loop"), relation("to_kafka", "sink", ["also"], "kafka"),
  ]);
  assert.deepEqual(Object.fromEntries(columns), { orders: 0, prices: 0, loop: 0, lines: 1, also: 1, totals: 2, to_archive: 3, to_loop: 3, to_kafka: 3, archive: 4 });
  assert.deepEqual(titles, ["Sources", "Views", "", "Sinks", "Written by sinks"]);
});

test("a sink that writes what its view reads is drawn, below all nodes", () => {
  const plan = layered([{ id: "t", column: 0, width: 90, height: 42 }, { id: "s", column: 1, width: 90, height: 42 }], [{ from: "t", to: "s" }, { from: "s", to: "t" }]);
  const back = plan.edges.find((edge) => edge.back);
  assert.equal(back.from, "s");
  assert.ok(Math.max(...back.points.map(({ y }) => y)) > Math.max(...plan.nodes.map(({ y, height }) => y + height)));
});

test("the path of a node is what it depends on and what depends on it", () => {
  const edges = [{ from: 1, to: 2 }, { from: 2, to: 3 }, { from: 4, to: 3 }, { from: 2, to: 5 }];
  const found = connected(2, edges);
  assert.deepEqual([...found.nodes].sort(), [1, 2, 3, 5]);
  assert.deepEqual(edges.map(found.lies), [true, true, false, true]);
});

test("a part of a circuit that is used twice is one node with two edges", () => {
  const node = (depth, number, again = false) => ({ depth, number, title: `n${number}`, arrangements: [], cost: null, work: null, again });
  const { nodes, edges } = connectedNodes([node(0, 0), node(1, 1), node(2, 2), node(3, 3), node(2, 4), node(3, 3, true)]);
  assert.deepEqual(nodes.map(({ number, column }) => [number, column]), [[0, 3], [1, 2], [2, 1], [3, 0], [4, 1]]);
  assert.deepEqual(edges, [{ from: 1, to: 0 }, { from: 2, to: 1 }, { from: 3, to: 2 }, { from: 4, to: 1 }, { from: 3, to: 4 }]);
});
