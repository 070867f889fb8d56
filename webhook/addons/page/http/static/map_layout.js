// Where each node of the GPU map is drawn. Pure: rows in, groups with rectangles out.

const PER_LINE = 8;
const GAP = 6;

const byName = new Intl.Collator("en", { numeric: true }).compare;
const ORDERS = {
  fragmentation: (a, b) => b.stranded - a.stranded || b.free - a.free || byName(a.node, b.node),
  name: (a, b) => byName(a.node, b.node),
};
const KEYS = {
  pool: (row) => row.pools.join(", ") || "no pool",
  model: (row) => row.model || "unknown model",
  domain: (row) => row.domain || "no domain",
};

/** The GPUs of a row one after another: each with its resource, its parts, and how much of a GPU it is. */
export function devices(row) {
  return row.groups.flatMap(([resource, isPacked, over, list, piece]) =>
    list.map(([pieces, parts]) => ({ resource, isPacked, over, pieces, parts, gpus: piece ? pieces * piece : 1 })),
  );
}

/** The size of one GPU in pixels, by how many there are; two nodes of eight GPUs fit beside each other on a phone. */
export function cellSize(gpus, width) {
  if (gpus <= 300) return width < 500 ? 18 : 20;
  if (gpus <= 2_500) return 14;
  return gpus <= 12_000 ? 8 : 6;
}

/** Groups in order of their names, each with its nodes in order and its height; a node has x, y and its cells. */
export function layout(rows, { groupBy, sortBy, width }) {
  const cell = cellSize(rows.reduce((sum, row) => sum + devices(row).length, 0), width);
  const groups = new Map();
  const key = KEYS[groupBy] ?? (() => "all nodes");
  for (const row of rows) {
    const name = key(row);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(row);
  }
  return [...groups]
    .sort(([a], [b]) => byName(a, b))
    .map(([name, members]) => place(name, members.sort(ORDERS[sortBy]), cell, width));
}

function place(name, members, cell, width) {
  const label = cell >= 18 ? 16 : 0;
  const nodes = [];
  let x = 1;
  let y = 1;
  let tallest = 0;
  for (const row of members) {
    const cells = devices(row);
    const columns = Math.max(1, Math.min(PER_LINE, cells.length));
    const wide = Math.max(columns * (cell + 1), label ? 84 : 0);
    const tall = Math.ceil(cells.length / PER_LINE) * (cell + 1) + label;
    if (x > 1 && x + wide > width) {
      x = 1;
      y += tallest + GAP;
      tallest = 0;
    }
    nodes.push({ row, cells, x, y, wide, tall });
    tallest = Math.max(tallest, tall);
    x += wide + GAP + (label ? 9 : 0);
  }
  return { name, nodes, cell, label, height: y + tallest + 2 };
}

/** The rectangle of one GPU of a node. */
export function cellAt(node, index, cell) {
  return [node.x + (index % PER_LINE) * (cell + 1), node.y + Math.floor(index / PER_LINE) * (cell + 1)];
}

/** The node and the GPU at a point of a group; -1 beside the GPUs. */
export function hit(group, x, y) {
  const { nodes, cell } = group;
  const isIn = (node) => x >= node.x && x < node.x + node.wide && y >= node.y && y < node.y + node.tall;
  const number = nodes.findIndex(isIn);
  if (number < 0) return null;
  const node = nodes[number];
  const column = Math.floor((x - node.x) / (cell + 1));
  const index = Math.floor((y - node.y) / (cell + 1)) * PER_LINE + column;
  return { number, index: column < PER_LINE && index < node.cells.length ? index : -1 };
}
