// Layered layout: nodes stand in columns, edges run through the gaps between them and never through a node.

const SWEEPS = 12;
const SLOT = 12;

/**
 * Place nodes and route edges.
 *
 * `nodes` have `id`, `column`, `width` and `height`; `edges` have `from` and `to`. An edge to the same
 * or an earlier column is routed below all nodes. Returns the nodes with `x` and `y` (the upper left),
 * the edges with `points`, each pair of which is a curve across a gap or a straight line through a
 * column, the columns with `x` and `width`, and the size of it all.
 */
export function layered(nodes, edges, { gap = 64, between = 12, margin = 4, top = 0 } = {}) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const last = nodes.reduce((most, { column }) => Math.max(most, column), -1);
  const columns = Array.from({ length: last + 1 }, () => []);
  const slots = new Map();
  const add = (column, slot) => {
    slot.order = columns[column].length;
    columns[column].push(slot);
    return slot;
  };
  for (const node of nodes) slots.set(node.id, add(node.column, { node, height: node.height, left: [], right: [] }));

  const link = (one, other) => {
    one.right.push(other);
    other.left.push(one);
  };
  const routes = [];
  for (const edge of edges) {
    const [from, to] = [byId.get(edge.from), byId.get(edge.to)];
    if (from === undefined || to === undefined) continue;
    if (to.column <= from.column) {
      routes.push({ edge, back: true, through: [] });
      continue;
    }
    const through = [];
    let before = slots.get(from.id);
    for (let column = from.column + 1; column < to.column; column += 1) {
      const slot = add(column, { node: null, height: SLOT, left: [], right: [] });
      link(before, slot);
      through.push({ column, slot });
      before = slot;
    }
    link(before, slots.get(to.id));
    routes.push({ edge, back: false, through });
  }

  order(columns);
  place(columns, between);

  const widths = columns.map((slotsOf) => slotsOf.reduce((most, { node }) => Math.max(most, node?.width ?? 0), 0));
  const lefts = [];
  widths.reduce((x, width, column) => {
    lefts[column] = x;
    return x + width + gap;
  }, margin);
  const least = Math.min(...columns.flat().map((slot) => slot.y - slot.height / 2), Infinity);
  const shift = Number.isFinite(least) ? margin + top - least : 0;
  for (const slot of columns.flat()) slot.y += shift;
  let bottom = Math.max(...columns.flat().map((slot) => slot.y + slot.height / 2), margin + top);

  const placed = nodes.map((node) => {
    const slot = slots.get(node.id);
    return { ...node, x: lefts[node.column], y: slot.y - node.height / 2, width: widths[node.column] };
  });
  const drawn = routes.map(({ edge, back, through }) => {
    const [from, to] = [byId.get(edge.from), byId.get(edge.to)];
    const begin = { x: lefts[from.column] + widths[from.column], y: slots.get(from.id).y };
    const end = { x: lefts[to.column], y: slots.get(to.id).y };
    if (back) {
      bottom += SLOT;
      return { ...edge, back, points: [begin, { x: begin.x + gap / 2, y: bottom }, { x: end.x - margin, y: bottom }, end] };
    }
    const points = [begin];
    for (const { column, slot } of through) points.push({ x: lefts[column], y: slot.y }, { x: lefts[column] + widths[column], y: slot.y });
    return { ...edge, back, points: [...points, end] };
  });
  const right = last < 0 ? margin : lefts[last] + widths[last];
  return {
    nodes: placed,
    edges: drawn,
    columns: lefts.map((x, column) => ({ x, width: widths[column] })),
    width: right + margin,
    height: bottom + margin + (drawn.some(({ back }) => back) ? SLOT : 0),
  };
}

/** Order the slots of each column so that few edges cross: by the mean place of their neighbours, there and back. */
function order(columns) {
  let best = null;
  const keep = () => {
    const found = crossings(columns);
    if (best === null || found < best.found) best = { found, columns: columns.map((each) => [...each]) };
  };
  keep();
  for (let sweep = 0; sweep < SWEEPS && best.found > 0; sweep += 1) {
    const forward = sweep % 2 === 0;
    const side = forward ? "left" : "right";
    for (const column of forward ? columns : [...columns].reverse()) {
      const wanted = new Map(column.map((slot) => [slot, slot[side].length ? mean(slot[side].map((each) => each.order)) : slot.order]));
      column.sort((a, b) => wanted.get(a) - wanted.get(b) || a.order - b.order);
      column.forEach((slot, index) => {
        slot.order = index;
      });
    }
    keep();
  }
  best.columns.forEach((slotsOf, column) => {
    columns[column] = slotsOf;
    slotsOf.forEach((slot, index) => {
      slot.order = index;
    });
  });
}

const mean = (values) => values.reduce((sum, each) => sum + each, 0) / values.length;

function crossings(columns) {
  let found = 0;
  for (const column of columns) {
    const ends = column.flatMap((slot) => slot.right.map((other) => [slot.order, other.order]));
    for (let i = 0; i < ends.length; i += 1) {
      for (let j = i + 1; j < ends.length; j += 1) if ((ends[i][0] - ends[j][0]) * (ends[i][1] - ends[j][1]) < 0) found += 1;
    }
  }
  return found;
}

/** Give each slot a `y`, its middle: near its neighbours', and clear of those above and below. */
function place(columns, between) {
  for (const column of columns) spread(column, column.map(() => 0), between);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (const column of sweep % 2 === 0 ? columns : [...columns].reverse()) {
      spread(column, column.map((slot) => {
        const near = [...slot.left, ...slot.right];
        return near.length ? mean(near.map(({ y }) => y)) : slot.y ?? 0;
      }), between);
    }
  }
}

/** Bring slots as near to the wanted places as their order and heights allow: groups that touch move together. */
function spread(column, wanted, between) {
  const blocks = [];
  column.forEach((slot, index) => {
    const half = slot.height / 2;
    let block = { slots: [{ slot, at: half }], height: slot.height, first: wanted[index] - half, weight: 1 };
    while (blocks.length && blocks.at(-1).first + blocks.at(-1).height + between > block.first) {
      const above = blocks.pop();
      const offset = above.height + between;
      const first = (above.first * above.weight + (block.first - offset) * block.weight) / (above.weight + block.weight);
      block = {
        slots: [...above.slots, ...block.slots.map((each) => ({ slot: each.slot, at: each.at + offset }))],
        height: offset + block.height, first, weight: above.weight + block.weight,
      };
    }
    blocks.push(block);
  });
  for (const { slots, first } of blocks) for (const { slot, at } of slots) slot.y = first + at;
}

/** Return the path of an edge: curves across gaps, straight lines through columns. */
export function pathOf({ points, back }) {
  const [first, ...rest] = points;
  let path = `M${first.x},${first.y}`;
  let before = first;
  rest.forEach((point, index) => {
    if (!back && index % 2 === 1) path += `H${point.x}`;
    else {
      const middle = (before.x + point.x) / 2;
      path += `C${middle},${before.y} ${middle},${point.y} ${point.x},${point.y}`;
    }
    before = point;
  });
  return path;
}

/** Return the ids that a node depends on and that depend on it, with its own. */
export function connected(id, edges) {
  const walk = (next) => {
    const found = new Set([id]);
    const left = [id];
    while (left.length) for (const other of next(left.pop())) if (!found.has(other)) {
      found.add(other);
      left.push(other);
    }
    return found;
  };
  const forward = edges.filter(({ back }) => !back);
  const above = walk((at) => forward.filter(({ to }) => to === at).map(({ from }) => from));
  const below = walk((at) => forward.filter(({ from }) => from === at).map(({ to }) => to));
  const lies = (edge) => !edge.back && ((above.has(edge.from) && above.has(edge.to)) || (below.has(edge.from) && below.has(edge.to)));
  return { nodes: new Set([...above, ...below]), lies };
}
