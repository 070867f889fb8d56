// Keeps an open page up to date: one stream of events, and views that are fetched again after a change.

const listeners = new Map();
const connection = document.getElementById("connection");
let source = null;

/** Call `listener` with the data of each event of this name. */
export function on(name, listener) {
  if (!listeners.has(name)) listeners.set(name, []);
  listeners.get(name).push(listener);
  source?.addEventListener(name, (event) => listener(JSON.parse(event.data)));
}

function say(text) {
  if (connection && connection.textContent !== text) connection.textContent = text;
}

function open() {
  if (source) return;
  source = new EventSource("/events");
  source.addEventListener("hello", () => say("live"));
  source.addEventListener("error", () => say(`not connected since ${new Date().toLocaleTimeString()}: trying again`));
  for (const [name, each] of listeners)
    for (const listener of each) source.addEventListener(name, (event) => listener(JSON.parse(event.data)));
}

function close() {
  source?.close();
  source = null;
}

/** One part of the page that the server renders: fetched again after changes, at most every few seconds. */
class Part {
  constructor(element) {
    this.id = element.id;
    this.seconds = Number(element.dataset.live);
    this.timer = 0;
    this.last = performance.now();
  }

  changed() {
    if (this.timer) return;
    const wait = Math.max(0, this.last + this.seconds * 1000 - performance.now());
    this.timer = setTimeout(() => this.fetch(), wait);
  }

  fetch() {
    const request = new XMLHttpRequest();
    request.responseType = "document";
    request.open("GET", location.href);
    request.onload = () => {
      const fresh = request.status === 200 ? request.response?.getElementById(this.id) : null;
      if (fresh) this.show(fresh);
      else if (request.status === 401 || request.status === 403) location.reload();
    };
    request.onloadend = () => {
      this.last = performance.now();
      this.timer = 0;
    };
    request.send();
  }

  show(fresh) {
    const element = document.getElementById(this.id);
    if (element.innerHTML === fresh.innerHTML) return;
    const focused = element.contains(document.activeElement) ? document.activeElement : null;
    const place = focused ? [...element.querySelectorAll("a, [tabindex]")].indexOf(focused) : -1;
    const scrolled = [...element.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    element.replaceChildren(...fresh.childNodes);
    element.querySelectorAll(".scroll").forEach((each, index) => (each.scrollLeft = scrolled[index] ?? 0));
    if (place >= 0) element.querySelectorAll("a, [tabindex]")[place]?.focus({ preventScroll: true });
  }
}

const parts = [...document.querySelectorAll("[data-live]")].map((element) => new Part(element));
const refresh = () => parts.forEach((part) => part.changed());
on("tick", refresh);
let wasOpen = false;
on("hello", () => {
  if (wasOpen) refresh();
  wasOpen = true;
});
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("pagehide", close);
addEventListener("pageshow", () => !document.hidden && open());
if (!document.hidden) open();
