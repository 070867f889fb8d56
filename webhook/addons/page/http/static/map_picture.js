// One group of the map: its heading, its canvas, and which GPU is looked at, by pointer, finger or arrow keys.

import { cellAt, hit } from "./map_layout.js";
import { paintNode } from "./map_paint.js";

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
    this.canvas = document.createElement("canvas");
    this.canvas.width = Math.round(width * looks.scale);
    this.canvas.height = Math.round(group.height * looks.scale);
    this.canvas.style.height = `${group.height}px`;
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", `GPUs of ${group.name}: arrow keys read them, Enter explains the pod`);
    this.heading = document.createElement("h2");
    this.pen = this.canvas.getContext("2d");
    this.pen.scale(looks.scale, looks.scale);
    this.canvas.addEventListener("pointermove", (event) => event.pointerType !== "touch" && this.point(event));
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => this.look(this.node, this.index));
    this.canvas.addEventListener("blur", () => this.paint(this.node));
  }

  title(isPartial) {
    let all = 0;
    let free = 0;
    for (const { row, cells } of this.group.nodes) {
      all += gpusOf(cells);
      free += row.state || row.held ? 0 : gpusOf(cells.filter((cell) => !cell.parts.length));
    }
    const sums = `${counted(this.group.nodes.length.toLocaleString("en"), "node")}, ${counted(rounded(all), "GPU")}`;
    const text = `: ${sums}${isPartial ? "" : `, ${rounded(free)} wholly free`}`;
    if (this.heading.textContent === this.group.name + text) return;
    const rest = document.createElement("span");
    rest.textContent = text;
    this.heading.replaceChildren(this.group.name, rest);
  }

  paint(number) {
    const node = this.group.nodes[number];
    if (node) paintNode(this.pen, node, this.group, this.looks.palette, this.looks, cellAt);
  }

  paintAll() {
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
    const node = this.group.nodes[this.node];
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    if (event.key === "Enter") this.explain();
    if (!(event.key in steps)) return;
    event.preventDefault();
    const [nodes, gpus] = steps[event.key];
    let [number, index] = [this.node + nodes, this.index + gpus];
    if (gpus && index >= node.cells.length) [number, index] = [number + 1, 0];
    if (gpus && index < 0) [number, index] = [number - 1, (this.group.nodes[number - 1]?.cells.length ?? 1) - 1];
    if (number >= 0 && number < this.group.nodes.length) this.look(number, index);
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
  const free = device.pieces - device.parts.reduce((sum, [, pieces]) => sum + pieces, 0);
  const gpus = (pieces) => counted(rounded((pieces / device.pieces) * device.gpus), "GPU");
  const isWhole = device.pieces === 1 && device.gpus === 1;
  const state = row.state ? ` (${row.state})` : row.held ? " (held for reclaim)" : "";
  const found = device.parts.map(([number, pieces]) => {
    const [namespace, name, owner, user, since, team, isPreemptible] = row.pods[number];
    if (!name) return "not shown to you: in use or free";
    const of = isWhole ? "" : `, ${gpus(pieces)}`;
    const by = [owner, user].filter(Boolean).join(", ");
    const from = since ? `, since ${new Date(since * 1000).toLocaleString()}` : "";
    return `${namespace}/${name}, team ${team}, ${isPreemptible ? "preemptible" : "guaranteed"}${of}${by ? `, of ${by}` : ""}${from}`;
  });
  if (free) found.push(isWhole ? "free" : `${gpus(free)} free`);
  return `${row.node}${state}, ${device.resource} ${index + 1} of ${cells.length}: ${found.join("; ")}`;
}
