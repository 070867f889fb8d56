// One group of the map: its heading, its canvas, and which GPU is looked at, by pointer, finger or arrow keys.

import { beside, cellAt, hit } from "./map_layout.js";
import { paintNode } from "./map_paint.js";

const ROOM_BELOW = 100; // pixels for the line that says what is looked at

const gpusOf = (cells) => cells.reduce((sum, { gpus }) => sum + gpus, 0);
const rounded = (gpus) => (Math.round(gpus * 100) / 100).toLocaleString("en");
const counted = (number, noun) => `${number} ${noun}${number === "1" ? "" : "s"}`;

export class Picture {
  /** `looks` has the palette, the scale, and what is dimmed; `says` shows what is looked at. */
  constructor(group, width, looks, says) {
    this.group = group;
    this.looks = looks;
    this.says = says;
    this.node = 0;
    this.index = 0;
    this.isTouched = false;
    this.isRead = false;
    this.canvas = document.createElement("canvas");
    this.canvas.style.height = `${group.height}px`;
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", `GPUs of ${group.name}: arrow keys read them, Enter explains the pod`);
    this.heading = document.createElement("h2");
    this.tile = group.tile ? this.made() : null;
    if (!this.tile) this.draw(width);
    this.canvas.addEventListener("pointermove", (event) => event.pointerType !== "touch" && this.point(event));
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => this.look(this.node, this.index));
    this.canvas.addEventListener("blur", () => this.paint(this.node));
  }

  /** The tile that opens to show the GPUs: how much of them is in use is its color. */
  made() {
    const tile = document.createElement("details");
    tile.className = "tile";
    tile.dataset.name = this.group.tile;
    this.summary = document.createElement("summary");
    tile.append(this.summary, this.canvas);
    tile.addEventListener("toggle", () => {
      if (!tile.open || this.pen) return;
      this.draw(tile.clientWidth - 2);
      this.paintAll();
    });
    return tile;
  }

  draw(width) {
    const { scale } = this.looks;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(this.group.height * scale);
    this.pen = this.canvas.getContext("2d");
    this.pen.scale(scale, scale);
  }

  /** What stands on the page. */
  get elements() {
    return this.tile ? [...(this.group.isFirst ? [this.heading] : []), this.tile] : [this.heading, this.canvas];
  }

  /** Say how much of a tile is in use; of a team that is highlighted, how much of it that team has. */
  heat() {
    const counts = (part, row) => !this.looks.isAnyTeamDimmed || !this.looks.isTeamDimmed(row.pods[part[0]][5]);
    let all = 0;
    let used = 0;
    for (const { row, cells } of this.group.nodes)
      for (const { gpus, pieces, parts } of cells) {
        all += gpus;
        for (const part of parts) if (counts(part, row)) used += (gpus * part[1]) / pieces;
      }
    const sums = document.createElement("span");
    const what = this.looks.isPartial ? "GPUs" : this.looks.isAnyTeamDimmed ? "GPUs of the team" : "GPUs in use";
    sums.textContent = this.looks.isPartial ? `${rounded(all)} ${what}` : `${rounded(used)} of ${rounded(all)} ${what}`;
    this.summary.replaceChildren(this.group.tile, sums);
    this.tile.style.setProperty("--heat", `${Math.round((45 * used) / Math.max(1, all))}%`);
    this.tile.hidden = this.group.nodes.every(({ row }) => this.looks.isNodeDimmed(row.node));
  }

  title(isPartial) {
    if (this.tile) this.heat();
    let all = 0;
    let free = 0;
    for (const { row, cells } of this.group.nodes) {
      all += gpusOf(cells);
      free += row.state || row.held ? 0 : gpusOf(cells.filter((cell) => !cell.parts.length && !cell.shut));
    }
    const sums = `${counted(this.group.nodes.length.toLocaleString("en"), "node")}, ${counted(rounded(all), "GPU")}`;
    const text = this.tile ? "" : `: ${sums}${isPartial ? "" : `, ${rounded(free)} wholly free`}`;
    if (this.heading.textContent === this.group.name + text) return;
    const rest = document.createElement("span");
    rest.textContent = text;
    this.heading.replaceChildren(this.group.name, rest);
  }

  paint(number) {
    const node = this.group.nodes[number];
    if (node && this.pen) paintNode(this.pen, node, this.group, this.looks.palette, this.looks, cellAt);
  }

  paintAll() {
    if (this.tile) this.heat();
    if (!this.pen) return;
    this.pen.fillStyle = this.looks.palette.ground;
    this.pen.fillRect(0, 0, this.canvas.width, this.canvas.height);
    this.group.nodes.forEach((_, number) => this.paint(number));
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const found = hit(this.group, event.clientX - box.left, event.clientY - box.top);
    if (!found || found.index < 0) return false;
    this.look(found.number, found.index);
    return true;
  }

  /** Open what a pointer read before; of a finger the first tap reads, and the second one on the same GPU opens. */
  click(event) {
    const before = this.isTouched ? `${this.node} ${this.index}` : "";
    if (!this.point(event)) return;
    const isSame = before === `${this.node} ${this.index}`;
    this.isTouched = event.pointerType === "touch";
    if (!this.isTouched || isSame) this.explain();
  }

  look(number, index) {
    this.isRead = true;
    this.paint(this.node);
    this.node = Math.max(0, Math.min(number, this.group.nodes.length - 1));
    const node = this.group.nodes[this.node];
    this.index = Math.max(0, Math.min(index, node.cells.length - 1));
    const [x, y] = cellAt(node, this.index, this.group.cell);
    this.pen.strokeStyle = this.looks.palette.text;
    this.pen.lineWidth = 2;
    this.pen.strokeRect(x, y, this.group.cell, this.group.cell);
    this.says(describe(node, this.index), this.address());
  }

  key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 };
    if (event.key === "Enter") this.explain();
    if (!(event.key in steps)) return;
    event.preventDefault();
    const isAlong = event.key === "ArrowRight" || event.key === "ArrowLeft";
    const found = isAlong ? this.next(steps[event.key]) : beside(this.group, this.node, this.index, steps[event.key]);
    if (!found) return;
    this.look(found.number, found.index);
    this.scroll();
  }

  /** The GPU before (-1) or after (1) the one that is looked at, also of the next node; null for none. */
  next(step) {
    const { nodes } = this.group;
    const index = this.index + step;
    if (index >= 0 && index < nodes[this.node].cells.length) return { number: this.node, index };
    const number = this.node + step;
    return nodes[number] ? { number, index: step > 0 ? 0 : nodes[number].cells.length - 1 } : null;
  }

  /** Bring the GPU that is looked at into view, above what is said of it. */
  scroll() {
    const [, y] = cellAt(this.group.nodes[this.node], this.index, this.group.cell);
    const top = this.canvas.getBoundingClientRect().top + y;
    const room = innerHeight - ROOM_BELOW;
    if (top < 0 || top + this.group.cell > room) scrollBy({ top: top - room / 2 });
  }

  /** The address of the explanation of the pod that is looked at; "" where there is none. */
  address() {
    const node = this.group.nodes[this.node];
    const part = node.cells[this.index]?.parts[0];
    const pod = part && node.row.pods[part[0]];
    return pod?.[1] ? `/explain?${new URLSearchParams({ namespace: pod[0], name: pod[1] })}` : "";
  }

  explain() {
    const address = this.address();
    if (address) location.href = address;
  }
}

function describe({ row, cells }, index) {
  const device = cells[index];
  const free = device.pieces - device.shut - device.parts.reduce((sum, [, pieces]) => sum + pieces, 0);
  const gpus = (pieces) => counted(rounded((pieces / device.pieces) * device.gpus), "GPU");
  const isWhole = device.pieces === 1 && device.gpus === 1;
  const state = row.state ? ` (${row.state})` : row.held ? " (reserved)" : "";
  const found = device.parts.map(([number, pieces]) => {
    const [namespace, name, owner, user, since, team, isPreemptible, isIdle] = row.pods[number];
    if (!name) return "not shown to you: in use or free";
    const of = isWhole ? "" : `, ${gpus(pieces)}`;
    const by = [owner, user].filter(Boolean).join(", ");
    const from = since ? `, since ${new Date(since * 1000).toLocaleString()}` : "";
    return `${namespace}/${name}, team ${team}, ${isPreemptible ? "preemptible" : "guaranteed"}${isIdle ? ", not used" : ""}${of}${by ? `, of ${by}` : ""}${from}`;
  });
  if (free) found.push(isWhole ? "free" : `${gpus(free)} free`);
  if (device.shut) found.push(`${isWhole ? "" : `${gpus(device.shut)} `}taken with other devices`);
  return `${row.node}${state}, ${device.resource} ${index + 1} of ${cells.length}: ${found.join("; ")}`;
}
