// Paints GPUs on a canvas: a team's color solid where guaranteed, hatched where borrowed, by part where shared.

const COLORS = 12;

/** The colors of the page as it is shown now, and the hatching of each team. */
export class Palette {
  constructor(scale) {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    this.teams = Array.from({ length: COLORS + 1 }, (_, number) => read(`team-${number}`));
    [this.ground, this.text, this.faint, this.free, this.closed, this.held, this.accent] = [
      "ground", "text", "faint", "free-line", "closed", "held", "accent",
    ].map(read);
    this.hatched = this.teams.map((color) => hatching(color, this.ground, scale));
  }
}

function hatching(color, ground, scale) {
  const size = Math.round(4 * scale);
  const tile = new OffscreenCanvas(size, size);
  const pen = tile.getContext("2d");
  pen.fillStyle = ground;
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = color;
  pen.lineWidth = 1.6 * scale;
  for (const shift of [-size, 0, size]) {
    pen.beginPath();
    pen.moveTo(shift - 1, size + 1);
    pen.lineTo(shift + size + 1, -1);
    pen.stroke();
  }
  const pattern = pen.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / scale));
  return pattern;
}

/** Paint one node: its GPUs, a line below it where it takes no pods, and its name where there is room. */
export function paintNode(pen, node, group, palette, colorOf, cellAt) {
  const { cell, label } = group;
  pen.fillStyle = palette.ground;
  pen.fillRect(node.x - 1, node.y - 1, node.wide + 2, node.tall + 2);
  node.cells.forEach((device, index) => {
    const [x, y] = cellAt(node, index, cell);
    paintDevice(pen, device, node.row, x, y, cell, palette, colorOf);
  });
  if (node.row.state) {
    pen.fillStyle = palette.closed;
    pen.fillRect(node.x, node.y + node.tall - label - 1, node.wide - 1, 1.5);
  }
  if (label) {
    pen.fillStyle = palette.faint;
    pen.font = "10.5px system-ui, sans-serif";
    pen.textBaseline = "bottom";
    pen.fillText(shortened(pen, node.row.node, node.wide), node.x, node.y + node.tall);
  }
}

function shortened(pen, name, room) {
  if (pen.measureText(name).width <= room) return name;
  let start = 1;
  while (start < name.length && pen.measureText(`…${name.slice(start)}`).width > room) start += 1;
  return `…${name.slice(start)}`;
}

function paintDevice(pen, device, row, x, y, cell, palette, colorOf) {
  let used = 0;
  for (const [number, pieces] of device.parts) {
    const [, , , , , team, isBorrowed] = row.pods[number];
    const color = colorOf(team);
    const bottom = y + cell - (used / device.pieces) * cell;
    const height = Math.max(1, (pieces / device.pieces) * cell - (device.pieces > 1 ? 0.5 : 0));
    pen.fillStyle = isBorrowed ? palette.hatched[color] : palette.teams[color];
    pen.fillRect(x, bottom - height, cell, height);
    used += pieces;
  }
  if (used < device.pieces) {
    pen.strokeStyle = row.state ? palette.closed : row.held ? palette.held : palette.free;
    pen.lineWidth = 1;
    pen.strokeRect(x + 0.5, y + 0.5, cell - 1, cell - 1);
    if (row.state) {
      pen.beginPath();
      pen.moveTo(x + 1, y + cell - 1);
      pen.lineTo(x + cell - 1, y + 1);
      pen.stroke();
    } else if (row.held) {
      const dot = Math.max(1.5, cell / 4);
      pen.fillStyle = palette.held;
      pen.fillRect(x + (cell - dot) / 2, y + (cell - dot) / 2, dot, dot);
    }
  } else if (device.parts.some(([number]) => row.pods[number][6])) {
    const number = device.parts[0][0];
    pen.strokeStyle = palette.teams[colorOf(row.pods[number][5])];
    pen.lineWidth = 1;
    pen.strokeRect(x + 0.5, y + 0.5, cell - 1, cell - 1);
  }
}
