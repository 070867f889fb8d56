// Where each node of the GPU map is drawn. Pure: rows in, groups with rectangles out.

const PER_LINE = 8;
const MOST = 2_500; // GPUs that are drawn one by one; of more, nodes are in tiles that open
const OF_TILE = 64; // nodes of one
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
  return gpus > 300 ? 14 : width < 500 ? 18 : 20;
}

/**
 * Groups in order of their names, each with its nodes in order and its height; a node has x, y and its cells. Of many
 * GPUs a group is in several tiles: its nodes by domain, and so many of them together.
 */
export function layout(rows, { groupBy, sortBy, width }) {
  const gpus = rows.reduce((sum, row) => sum + devices(row).length, 0);
  const cell = cellSize(gpus, width);
  const groups = new Map();
  const key = KEYS[groupBy] ?? (() => "all nodes");
  for (const row of rows) {
    const name = key(row);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(row);
  }
  return [...groups]
    .sort(([a], [b]) => byName(a, b))
    .flatMap(([name, members]) => {
      if (gpus <= MOST) return place(name, members.sort(ORDERS[sortBy]), cell, width);
      return tiles(members).map((part, number) => {
        const tile = `${part[0].node} to ${part.at(-1).node}`;
        const domain = part[0].domain && `${part[0].domain}: `;
        return { ...place(name, part.sort(ORDERS[sortBy]), cell, width - 2), tile: domain + tile, isFirst: !number };
      });
    });
}

/** The nodes of a group in parts, by domain and name. */
function tiles(members) {
  members.sort((a, b) => byName(a.domain, b.domain) || byName(a.node, b.node));
  const found = [];
  for (const row of members) {
    const last = found.at(-1);
    if (last && last.length < OF_TILE && last[0].domain === row.domain) last.push(row);
    else found.push([row]);
  }
  return found;
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

/** The GPU in the next line above (-1) or below (1) one, the nearest one in it, as its node and number; null for none. */
export function beside({ nodes, cell }, number, index, way) {
  const [x, y] = cellAt(nodes[number], index, cell);
  let found = null;
  nodes.forEach((node, at) => {
    node.cells.forEach((_, place) => {
      const [left, top] = cellAt(node, place, cell);
      const [down, aside] = [(top - y) * way, Math.abs(left - x)];
      if (down <= 0 || (found && (down > found.down || (down === found.down && aside >= found.aside)))) return;
      found = { number: at, index: place, down, aside };
    });
  });
  return found;
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
