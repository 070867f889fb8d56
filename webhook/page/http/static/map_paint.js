// Paints GPUs on a canvas: a team's color solid where guaranteed, hatched where preemptible, by part where shared; its
// letters on the first GPU of each pod, and a faint gap between the GPUs of one pod.

const COLORS = 8;
const LETTERS_FROM = 14; // pixels of a GPU in which letters can be read
const DIMMED = 0.16;
const JOINT = 0.45; // of the gap between two GPUs of one pod

/** The colors of the page as it is shown now, the hatching of each team, and ink that can be read on it. */
export class Palette {
  constructor(scale) {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    const body = getComputedStyle(document.querySelector("#map").parentElement);
    this.teams = Array.from({ length: COLORS + 1 }, (_, number) => read(`team-${number}`));
    this.inks = this.teams.map(inkOn);
    [this.ground, this.text] = [body.backgroundColor, body.color]; // as resolved: a system color where colors are forced
    [this.faint, this.free, this.closed, this.held] = ["faint", "free-line", "closed", "held"].map(read);
    this.font = body.fontFamily;
    this.hatched = this.teams.map((color) => hatching(color, this.ground, scale));
  }
}

function inkOn(color) {
  const parts = [1, 3, 5].map((at) => (Number.parseInt(color.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] > 0.2 ? "#10141a" : "#ffffff";
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

/**
 * Paint one node: its GPUs, a line below it where it takes no pods, and its name where there is room. `looks` says
 * which color and letters a team has, whether it is dimmed, and whether the node is.
 */
export function paintNode(pen, node, group, palette, looks, cellAt) {
  const { cell, label } = group;
  pen.fillStyle = palette.ground;
  pen.fillRect(node.x - 1, node.y - 1, node.wide + 2, node.tall + 2);
  const isDimmed = looks.isNodeDimmed(node.row.node);
  node.cells.forEach((device, index) => {
    const [x, y] = cellAt(node, index, cell);
    const before = index % 8 ? alone(node.cells[index - 1]) : -1;
    paintDevice({ pen, device, row: node.row, x, y, cell, palette, looks, before, isDimmed });
  });
  pen.globalAlpha = isDimmed ? DIMMED : 1;
  if (node.row.state) {
    pen.fillStyle = palette.closed;
    pen.fillRect(node.x, node.y + node.tall - label, node.wide - 1, 1.5);
  }
  if (label) {
    pen.fillStyle = palette.faint;
    pen.font = `11px ${palette.font}`;
    pen.textAlign = "left";
    pen.textBaseline = "bottom";
    pen.fillText(shortened(pen, node.row.node, node.wide), node.x, node.y + node.tall);
  }
  pen.globalAlpha = 1;
}

/** The pod that has a whole GPU for itself, as its number in the row; -1 for none. */
const alone = ({ parts, pieces }) => (parts.length === 1 && parts[0][1] === pieces ? parts[0][0] : -1);

function shortened(pen, name, room) {
  if (pen.measureText(name).width <= room) return name;
  let start = 1;
  while (start < name.length && pen.measureText(`…${name.slice(start)}`).width > room) start += 1;
  return `…${name.slice(start)}`;
}

function paintDevice({ pen, device, row, x, y, cell, palette, looks, before, isDimmed }) {
  let used = 0;
  const own = alone(device);
  const joined = own >= 0 && own === before ? 1 : 0; // the gap to the GPU before, which the same pod has
  for (const [number, pieces] of device.parts) {
    const [, , , , , team, isPreemptible] = row.pods[number];
    const color = looks.colorOf(team);
    const bottom = y + cell - (used / device.pieces) * cell;
    const height = Math.max(1, (pieces / device.pieces) * cell - (device.pieces > 1 ? 0.5 : 0));
    pen.globalAlpha = isDimmed || looks.isTeamDimmed(team) ? DIMMED : 1;
    pen.fillStyle = isPreemptible ? palette.hatched[color] : palette.teams[color];
    pen.fillRect(x - joined, bottom - height, cell + joined, height);
    used += pieces;
    if (row.pods[number][7]) notch(pen, palette, x, bottom - height, cell);
    if (isPreemptible && own >= 0) frame(pen, palette.teams[color], x - joined, y, cell + joined, cell, joined);
  }
  pen.globalAlpha = JOINT;
  pen.fillStyle = palette.ground;
  if (joined) pen.fillRect(x - 1, y, 1, cell);
  const written = own >= 0 ? !joined && row.pods[own] : ofOneTeam(device, row);
  pen.globalAlpha = isDimmed || (written && looks.isTeamDimmed(written[5])) ? DIMMED : 1;
  if (written && cell >= LETTERS_FROM) write(pen, written, { x, y, cell, palette, looks, isHaloed: own < 0 || written[6] });
  pen.globalAlpha = isDimmed || looks.isAnyTeamDimmed ? 2 * DIMMED : 1;
  if (used < device.pieces) paintFree(pen, row, x, y, cell, palette);
  pen.globalAlpha = 1;
}

/** The mark of a pod that does not use its GPUs: a corner without color. */
function notch(pen, palette, x, top, cell) {
  pen.fillStyle = palette.ground;
  pen.beginPath();
  pen.moveTo(x + cell / 2, top);
  pen.lineTo(x + cell, top);
  pen.lineTo(x + cell, top + cell / 2);
  pen.fill();
}

/** The edges of a preemptible GPU: above, below, and at the left of the first of a pod. */
function frame(pen, color, x, y, wide, tall, isJoined) {
  pen.fillStyle = color;
  pen.fillRect(x, y, wide, 1);
  pen.fillRect(x, y + tall - 1, wide, 1);
  if (!isJoined) pen.fillRect(x, y, 1, tall);
}

/** A pod of the only team that shares a GPU; undefined where none does, or several. */
function ofOneTeam({ parts }, row) {
  const pods = parts.map(([number]) => row.pods[number]);
  return pods.every((pod) => pod[5] === pods[0][5]) ? pods[0] : undefined;
}

function write(pen, [, , , , , team], { x, y, cell, palette, looks, isHaloed }) {
  const letters = looks.lettersOf(team);
  const color = looks.colorOf(team);
  pen.font = `700 ${Math.round(cell * 0.55)}px ${palette.font}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  if (isHaloed) {
    pen.strokeStyle = palette.ground;
    pen.lineWidth = 4;
    pen.lineJoin = "round";
    pen.strokeText(letters, x + cell / 2, y + cell / 2 + 1);
  }
  pen.fillStyle = isHaloed ? palette.text : palette.inks[color];
  pen.fillText(letters, x + cell / 2, y + cell / 2 + 1);
}

function paintFree(pen, row, x, y, cell, palette) {
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
}
