// The GPU map: fetched once, then kept by the rows that the stream sends; only nodes that changed are painted again.

import { on, refreshSoon } from "./live.js";
import { choices, isFound, onChoice } from "./map_choices.js";
import { devices, layout } from "./map_layout.js";
import { Palette } from "./map_paint.js";
import { Picture } from "./map_picture.js";

const HIDDEN = 8;
const SORT_AGAIN_MS = 10_000;
const map = document.getElementById("map");
const says = document.getElementById("map-says");
const foundNodes = document.getElementById("map-found");

const rows = new Map();
const places = new Map(); // node → its group's picture and its number there
let teams = new Map(); // team → its color and letters
let isPartial = false; // which other GPUs are in use is not shown to this viewer
let sequence = -1;
let isLoading = false;
let joined = -1; // the sequence at which the stream began
let pictures = [];
let waiting = [];
let sortedAt = 0;

const looks = {
  scale: 1,
  palette: null,
  colorOf: (team) => teams.get(team)?.color ?? HIDDEN,
  lettersOf: (team) => teams.get(team)?.letters ?? "",
  get isAnyTeamDimmed() {
    return teams.has(choices.team);
  },
  isTeamDimmed: (team) => looks.isAnyTeamDimmed && team !== choices.team,
  get isPartial() {
    return isPartial;
  },
  isNodeDimmed: (node) => !isFound(node),
};

function say(text, address) {
  says.classList.add("read");
  says.firstElementChild.textContent = text;
  says.lastElementChild.hidden = !address;
  says.lastElementChild.href = address || "/";
}

function arrange() {
  looks.scale = window.devicePixelRatio || 1;
  looks.palette = new Palette(looks.scale);
  const width = map.clientWidth;
  const looked = pictures.filter(({ isRead }) => isRead).map(({ group, node, index, canvas }) => [group.nodes[node]?.row.node, index, canvas === document.activeElement]);
  const groups = layout([...rows.values()], { groupBy: choices.groupBy, sortBy: choices.sortBy, width });
  pictures = groups.map((group) => new Picture(group, width, looks, say));
  places.clear();
  for (const picture of pictures) {
    picture.group.nodes.forEach(({ row }, number) => places.set(row.node, [picture, number]));
    picture.title(isPartial);
    picture.paintAll();
  }
  const open = new Set([...map.querySelectorAll("details[open]")].map((tile) => tile.dataset.name));
  map.replaceChildren(...pictures.flatMap(({ elements }) => elements));
  for (const { tile, group } of pictures) if (tile && open.has(group.tile)) tile.open = true;
  for (const [name, index, isFocused] of looked) {
    const [picture, number] = places.get(name) ?? [];
    if (!picture) continue;
    [picture.node, picture.index] = [number, index];
    if (isFocused) picture.canvas.focus({ preventScroll: true });
  }
  sortedAt = performance.now();
}

/** Say how many nodes have what is looked for in their names, and bring the first into view. */
function find({ scrolls }) {
  const found = choices.node ? pictures.flatMap((each) => each.group.nodes.filter(({ row }) => isFound(row.node))) : [];
  foundNodes.textContent = choices.node ? `${found.length} of ${rows.size} nodes` : "";
  if (!found.length || !scrolls) return;
  const [{ tile }] = places.get(found[0].row.node);
  if (tile) tile.open = true;
  const top = places.get(found[0].row.node)[0].canvas.getBoundingClientRect().top + found[0].y;
  if (top < 0 || top > innerHeight) scrollBy({ top: top - innerHeight / 2 });
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
  else touched.forEach((picture) => picture.title(isPartial));
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
  teams = new Map(found.teams.map(([name, letters, color]) => [name, { letters, color }]));
  isPartial = found.partial;
  sequence = found.sequence;
  arrange();
  const missed = waiting;
  waiting = [];
  missed.forEach(update);
  if (joined > sequence) return load(); // the stream began after what was fetched
  says.hidden = rows.size === 0;
  find({ scrolls: map.dataset.drawnMs === undefined });
  map.dataset.drawnMs ??= performance.now().toFixed(0);
}

document.querySelectorAll("#map-tools .scripted, #map-tools .unscripted").forEach((each) => (each.hidden = !each.hidden));
onChoice({
  moved: arrange,
  painted({ finds }) {
    pictures.forEach((picture) => picture.paintAll());
    if (finds) find({ scrolls: true });
    refreshSoon();
  },
});
for (const looksOther of ["(prefers-color-scheme: dark)", "print", "(forced-colors: active)"])
  matchMedia(looksOther).addEventListener("change", () => rows.size && arrange());
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
