// The GPU map: fetched once, then kept by the rows that the stream sends; only nodes that changed are painted again.

import { on } from "./live.js";
import { cellAt, devices, hit, layout } from "./map_layout.js";
import { Palette, paintNode } from "./map_paint.js";

const HIDDEN = 12;
const SORT_AGAIN_MS = 10_000;
const map = document.getElementById("map");
const says = document.getElementById("map-says");
const groupBy = document.getElementById("map-group");
const sortBy = document.getElementById("map-sort");

const rows = new Map();
const places = new Map(); // node → its group's picture and its number there
let teams = [];
let isPartial = false; // which other GPUs are in use is not shown to this viewer
let sequence = -1;
let isLoading = false;
let joined = -1; // the sequence at which the stream began
let pictures = [];
let palette = null;
let scale = 1;
let waiting = [];
let sortedAt = 0;

const colorOf = (team) => {
  const number = teams.indexOf(team);
  return number < 0 ? HIDDEN : number % 12;
};

/** One group: its heading, its canvas, and which GPU is looked at. */
class Picture {
  constructor(group, width) {
    this.group = group;
    this.node = 0;
    this.index = 0;
    this.canvas = document.createElement("canvas");
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(group.height * scale);
    this.canvas.style.height = `${group.height}px`;
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", `GPUs of ${group.name}: arrow keys read them, Enter explains the pod`);
    this.heading = document.createElement("h2");
    this.pen = this.canvas.getContext("2d");
    this.pen.scale(scale, scale);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("click", (event) => this.point(event) && this.explain());
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => this.look(this.node, this.index));
    this.canvas.addEventListener("blur", () => this.paint(this.node));
  }

  title() {
    let all = 0;
    let free = 0;
    for (const { row, cells } of this.group.nodes) {
      all += gpusOf(cells);
      free += row.state || row.held ? 0 : gpusOf(cells.filter((cell) => !cell.parts.length));
    }
    const text = `${this.group.name}: ${counted(this.group.nodes.length, "node")}, ${counted(rounded(all), "GPU")}${isPartial ? "" : `, ${rounded(free)} wholly free`}`;
    if (this.heading.textContent !== text) this.heading.textContent = text;
  }

  paint(number) {
    const node = this.group.nodes[number];
    if (node) paintNode(this.pen, node, this.group, palette, colorOf, cellAt);
  }

  paintAll() {
    this.pen.fillStyle = palette.ground;
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

  look(number, index) {
    this.paint(this.node);
    this.node = Math.max(0, Math.min(number, this.group.nodes.length - 1));
    const node = this.group.nodes[this.node];
    this.index = Math.max(0, Math.min(index, node.cells.length - 1));
    const [x, y] = cellAt(node, this.index, this.group.cell);
    this.pen.strokeStyle = palette.text;
    this.pen.lineWidth = 2;
    this.pen.strokeRect(x, y, this.group.cell, this.group.cell);
    says.textContent = describe(node, this.index);
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

  explain() {
    const node = this.group.nodes[this.node];
    const part = node.cells[this.index]?.parts[0];
    const pod = part && node.row.pods[part[0]];
    if (pod?.[1]) location.href = `/explain?${new URLSearchParams({ namespace: pod[0], name: pod[1] })}`;
  }
}

const gpusOf = (cells) => cells.reduce((sum, { gpus }) => sum + gpus, 0);
const rounded = (gpus) => Math.round(gpus * 100) / 100;
const counted = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

function describe({ row, cells }, index) {
  const device = cells[index];
  const free = device.pieces - device.parts.reduce((sum, [, pieces]) => sum + pieces, 0);
  const state = row.state ? ` (${row.state})` : row.held ? " (held for reclaim)" : "";
  const found = device.parts.map(([number, pieces]) => {
    const [namespace, name, owner, user, since, team, isBorrowed] = row.pods[number];
    if (!name) return "not shown to you: in use or free";
    const of = device.pieces > 1 ? `, ${pieces} of ${device.pieces} parts` : "";
    const by = [owner, user].filter(Boolean).join(", ");
    const from = since ? `, since ${new Date(since * 1000).toLocaleString()}` : "";
    return `${namespace}/${name}, team ${team}, ${isBorrowed ? "borrowed" : "guaranteed"}${of}${by ? `, of ${by}` : ""}${from}`;
  });
  if (free) found.push(device.pieces > 1 ? `${free} of ${device.pieces} parts free` : "free");
  return `${row.node}${state}, ${device.resource} ${index + 1} of ${cells.length}: ${found.join("; ")}`;
}

function arrange() {
  scale = window.devicePixelRatio || 1;
  palette = new Palette(scale);
  const width = map.clientWidth;
  const looked = document.activeElement?.tagName === "CANVAS" ? pictures.findIndex((each) => each.canvas === document.activeElement) : -1;
  const groups = layout([...rows.values()], { groupBy: groupBy.value, sortBy: sortBy.value, width });
  pictures = groups.map((group) => new Picture(group, width));
  places.clear();
  for (const picture of pictures) {
    picture.group.nodes.forEach(({ row }, number) => places.set(row.node, [picture, number]));
    picture.title();
    picture.paintAll();
  }
  map.replaceChildren(...pictures.flatMap(({ heading, canvas }) => [heading, canvas]));
  if (looked >= 0) pictures[looked]?.canvas.focus({ preventScroll: true });
  sortedAt = performance.now();
}

/** Apply rows of the stream; a node that came or went, or has other GPUs, moves the others. */
function update({ sequence: at, rows: changed }) {
  if (sequence < 0) {
    if (isLoading) waiting.push({ sequence: at, rows: changed });
    return;
  }
  if (at <= sequence) return;
  const start = performance.now();
  sequence = at;
  let isMoved = false;
  const touched = new Set();
  for (const [name, row] of Object.entries(changed)) {
    const place = places.get(name);
    if (!row) {
      isMoved = rows.delete(name) || isMoved;
      continue;
    }
    rows.set(name, row);
    const cells = devices(row);
    const node = place?.[0].group.nodes[place[1]];
    if (!node || node.cells.length !== cells.length || node.row.pools.join() !== row.pools.join()) {
      isMoved = true;
      continue;
    }
    node.row = row;
    node.cells = cells;
    place[0].paint(place[1]);
    touched.add(place[0]);
  }
  if (isMoved) arrange();
  else touched.forEach((picture) => picture.title());
  map.dataset.updateMs = Math.max(Number(map.dataset.updateMs ?? 0), performance.now() - start).toFixed(1);
  map.dataset.updates = Number(map.dataset.updates ?? 0) + 1;
}

/** Fetch all rows; null where that fails: the next connection of the stream tries again. */
async function fetched() {
  try {
    const response = await fetch(map.dataset.url);
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

async function load() {
  sequence = -1;
  isLoading = true;
  const found = await fetched();
  isLoading = false;
  if (!found) return;
  rows.clear();
  for (const row of found.rows) rows.set(row.node, row);
  teams = found.teams;
  isPartial = found.partial;
  sequence = found.sequence;
  arrange();
  const missed = waiting;
  waiting = [];
  missed.forEach(update);
  if (joined > sequence) return load(); // the stream began after what was fetched
  says.hidden = rows.size === 0;
  document.getElementById("map-tools").hidden = rows.size === 0;
  map.dataset.drawnMs ??= performance.now().toFixed(0);
}

groupBy.addEventListener("change", arrange);
sortBy.addEventListener("change", arrange);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", arrange);
let resized = 0;
let width = map.clientWidth;
new ResizeObserver(() => {
  if (map.clientWidth === width) return;
  width = map.clientWidth;
  cancelAnimationFrame(resized);
  resized = requestAnimationFrame(() => rows.size && arrange());
}).observe(map);
on("rows", update);
on("hello", (hello) => {
  joined = hello.sequence;
  if (!isLoading && joined !== sequence) load();
});
on("tick", () => {
  const isIdle = !map.contains(document.activeElement) && !map.matches(":hover");
  if (isIdle && rows.size && performance.now() - sortedAt > SORT_AGAIN_MS) arrange();
});
await load();
