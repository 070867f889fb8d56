// Keeps an open page up to date: one stream of events, and parts of the page that are fetched again after a change.

import { lost, lostSession, fresh, stale } from "./status.js";

const SILENT_MS = 45_000; // the server says something every 15 s
const AGAIN_MS = 60_000; // ages grow also where nothing changes
const WAITS_MS = [1_000, 3_000, 5_000, 10_000, 30_000];

const listeners = new Map();
let source = null;
let heard = 0;
let tries = 0;
let timer = 0;

/** Call `listener` with the data of each event of this name. */
export function on(name, listener) {
  if (!listeners.has(name)) listeners.set(name, []);
  listeners.get(name).push(listener);
  source?.addEventListener(name, (event) => hear(listener, event));
}

function hear(listener, event) {
  heard = performance.now();
  listener(JSON.parse(event.data));
}

function open() {
  if (source || document.hidden) return;
  clearTimeout(timer);
  heard = performance.now();
  source = new EventSource("/events");
  source.addEventListener("error", broken);
  for (const [name, each] of listeners)
    for (const listener of each) source.addEventListener(name, (event) => hear(listener, event));
}

function close() {
  clearTimeout(timer);
  source?.close();
  source = null;
}

/** The stream broke. The browser gives up for good after an answer that is no stream, so each try is made here. */
async function broken() {
  close();
  lost();
  timer = setTimeout(again, WAITS_MS[Math.min(tries, WAITS_MS.length - 1)]);
  tries += 1;
}

async function again() {
  const status = await answered();
  if (status === 403) location.assign(location.href); // the rights are gone, and the page says which
  else if (status === 204) open();
  else {
    await broken();
    if (status === 401) lostSession();
  }
}

/** The status of an answer of this server; 0 where there is none. */
async function answered() {
  try {
    return (await fetch("/signed-in")).status;
  } catch {
    return 0;
  }
}

/** The parts of the page that the server renders, fetched together, at most every few seconds. */
const parts = [...document.querySelectorAll("[data-live]")].map((element) => element.id);
const seconds = Math.min(...[...document.querySelectorAll("[data-live]")].map((element) => Number(element.dataset.live)));
let planned = 0;
let last = performance.now();

function refresh() {
  if (planned || !parts.length) return;
  planned = setTimeout(fetchParts, Math.max(0, last + seconds * 1000 - performance.now()));
}

/** Fetch the parts again at once, as after another choice of the viewer. */
export function refreshSoon() {
  clearTimeout(planned);
  planned = setTimeout(fetchParts, 250);
}

function fetchParts() {
  const request = new XMLHttpRequest();
  request.responseType = "document";
  request.open("GET", location.href);
  request.onload = () => {
    if (request.status === 200) parts.forEach((id) => show(document.getElementById(id), request.response.getElementById(id)));
    else if (request.status === 401 || request.status === 403) broken();
  };
  request.onloadend = () => {
    last = performance.now();
    planned = 0;
  };
  request.send();
}

function show(element, fresh) {
  if (!element || !fresh || element.innerHTML === fresh.innerHTML) return;
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const place = focused ? [...element.querySelectorAll("a, [tabindex]")].indexOf(focused) : -1;
  const scrolled = [...element.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  element.replaceChildren(...fresh.childNodes);
  element.querySelectorAll(".scroll").forEach((each, index) => (each.scrollLeft = scrolled[index] ?? 0));
  if (place >= 0) element.querySelectorAll("a, [tabindex]")[place]?.focus({ preventScroll: true });
}

let wasOpen = false;
on("hello", (hello) => {
  tries = 0;
  fresh();
  stale(hello.stale);
  if (wasOpen) refresh();
  wasOpen = true;
});
on("stale", (found) => stale(found.stale));
on("tick", refresh);
on("still", () => {});
setInterval(() => source && (performance.now() - heard > SILENT_MS ? broken() : 0), 5_000);
setInterval(() => source && refresh(), AGAIN_MS);
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("pagehide", close);
addEventListener("pageshow", open);
open();
